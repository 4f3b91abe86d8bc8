"""Commands: run one to its end (300 s), or start one in the background, look at it and stop it.

All are confined; a command's whole tree is gone when it ends, times out or is stopped. Results say how well it was
confined and what did not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from proctor.gate.context import Context
from proctor.protocol.events import Draft, EventStatus
from proctor.protocol.ids import new_id
from proctor.protocol.tools import SideEffect, Tool, Touch
from proctor.sandbox.run import run
from proctor.sandbox.spec import Result
from proctor.tools import jobs
from proctor.tools.confined import Shell, command_spec, runs, sandbox_facts
from proctor.tools.models import MARK, Moment, Stored, ToolInput, ToolOutput, now
from proctor.tools.registry import declare

__all__ = ["CommandOut", "JobOut", "command_tools"]

COMMAND_SECONDS: Final = 300.0
JOB_SECONDS: Final = 3600.0
JOB_MOST: Final = 86_400.0
_GRACE: Final = 15.0  # what ending a tree may take beyond its limit
CommandText = Annotated[str, Field(min_length=1, max_length=32_768)]
Hosts = Annotated[list[Annotated[str, Field(min_length=1, max_length=300)]], Field(max_length=50)]
HOSTS_WORDS: Final = (
    "Hosts the command needs (`example.org`, `*.example.org`); it reaches these only, through a proxy."
)
JobId = Annotated[str, Field(min_length=1, max_length=64, description="What start_command answered."), Stored]


class CommandIn(ToolInput):
    """One command line."""

    command: CommandText = Field(description="Command line for the shell.")
    cwd: str = Field(default=".", max_length=4096, description="Directory inside the workspace.")
    timeout_seconds: float = Field(default=COMMAND_SECONDS, gt=0, le=COMMAND_SECONDS)
    shell: Shell | None = Field(default=None, description="bash or pwsh; the configured one by default.")
    hosts: Hosts = Field(default=[], description=HOSTS_WORDS)


class SandboxOut(BaseModel):
    """How well the command was confined."""

    model_config = ConfigDict(frozen=True)

    level: int
    net: str = Field(description="off, hosts (only those of a list) or full.")
    missing: list[str] = Field(description="What did not hold, in plain words.")
    limits: dict[str, str] = Field(
        default_factory=dict, description="Who kept memory, cpu and processes: cgroup, rlimit or polled."
    )
    reached: list[str] = Field(default_factory=list, description="Hosts of the list that were reached.")
    refused: list[str] = Field(
        default_factory=list, description="Hosts that were wanted and refused, and why."
    )


class CommandOut(ToolOutput):
    """What came of it."""

    command: str
    stdout: str
    stderr: str
    output: str = Field(description="stdout, then stderr.")
    exit_code: int
    success: bool
    duration_ms: float
    timed_out: bool = False
    killed_for: str | None = Field(default=None, description="timeout, cancelled, memory or processes.")
    survivors: int = Field(default=0, description="Processes of its tree that could not be ended.")
    truncated: bool = False
    cpu_seconds: float | None = None
    sandbox: SandboxOut | None = None
    altered: list[str] = Field(
        default_factory=list, description="Protected files it changed; put back unless it says not."
    )


class StartIn(ToolInput):
    """One command line for the background."""

    command: CommandText = Field(description="Command line for the shell.")
    cwd: str = Field(default=".", max_length=4096, description="Directory inside the workspace.")
    timeout_seconds: float = Field(default=JOB_SECONDS, gt=0, le=JOB_MOST)
    shell: Shell | None = Field(default=None, description="bash or pwsh; the configured one by default.")
    hosts: Hosts = Field(default=[], description=HOSTS_WORDS)


class StatusIn(ToolInput):
    """Which background command."""

    job_id: JobId
    wait_seconds: float = Field(default=0.0, ge=0, le=30, description="Wait so long for its end.")


class StopIn(ToolInput):
    """Which background command."""

    job_id: JobId


class JobOut(ToolOutput):
    """How a background command stands."""

    job_id: str
    state: str = Field(
        description="running, completed, failed, stopped, timed_out, not_started, or interrupted: "
        "the process that ran it died."
    )
    running: bool
    command: str
    cwd: str = "."
    progress: str = Field(default="", description="The last line it printed.")
    stdout: str = Field(default="", description="The end of what it printed.")
    stderr: str = ""
    exit_code: int | None = None
    success: bool = False
    truncated: bool = False
    error: str | None = None
    started_at: Moment
    ended_at: Moment | None = None
    duration_ms: float
    cpu_seconds: float | None = None
    sandbox: SandboxOut | None = None


async def _mock_command(_context: Context, call: CommandIn) -> CommandOut:
    text = f"{MARK}: {call.command} was not run\n"
    return CommandOut(
        simulated=True,
        command=call.command,
        stdout=text,
        stderr="",
        output=text,
        exit_code=0,
        success=True,
        duration_ms=0.0,
    )


def _command_out(command: str, done: Result) -> CommandOut:
    out, err = done.stdout.text, done.stderr.text
    return CommandOut(
        command=command,
        stdout=out,
        stderr=err,
        output=out + err,
        exit_code=done.exit_code,
        success=done.ok,
        duration_ms=round(done.duration * 1000, 3),
        timed_out=done.timed_out,
        killed_for=done.killed_for,
        survivors=done.survivors,
        truncated=done.stdout.truncated or done.stderr.truncated,
        cpu_seconds=round(done.cpu_seconds, 3),
        sandbox=SandboxOut(**sandbox_facts(done.sandbox)),
        altered=[one.path + ("" if one.restored else " (not put back)") for one in done.altered],
    )


async def _tell_refusals(context: Context, done: Result) -> None:
    """Hosts that were wanted and refused stand in the trace, whatever the command made of it."""
    refused, call = done.sandbox.refused, context.call
    if not refused:
        return
    draft = Draft(
        call.trace_id,
        "network_refused",
        status=EventStatus.WARNING,
        actor=call.actor.kind,
        actor_name=call.actor.name,
        session_id=call.session_id,
        task_id=call.task_id,
        attempt=call.attempt,
        tool_name="execute_command",
        details={"call_id": call.call_id, "hosts": list(refused)},
    )
    await context.writer.append_async([draft])


async def _status(context: Context, call: StatusIn) -> JobOut:
    return JobOut(**await jobs.status(context, call.job_id, wait=call.wait_seconds))


async def _stop(context: Context, call: StopIn) -> JobOut:
    return JobOut(**await jobs.stop(context, call.job_id))


def _mock_job(job_id: str, command: str, state: str) -> JobOut:
    at = now()
    return JobOut(
        simulated=True,
        job_id=job_id,
        state=state,
        running=False,
        command=command,
        stdout=f"{MARK}: nothing was run\n",
        exit_code=0,
        success=True,
        started_at=at,
        ended_at=at,
        duration_ms=0.0,
    )


async def _mock_start(_context: Context, call: StartIn) -> JobOut:
    return _mock_job(new_id("job"), call.command, "completed")


async def _mock_status(_context: Context, call: StatusIn) -> JobOut:
    return _mock_job(call.job_id, MARK, "completed")


async def _mock_stop(_context: Context, call: StopIn) -> JobOut:
    return _mock_job(call.job_id, MARK, "stopped")


def _nothing(_call: StatusIn | StopIn) -> Sequence[Touch]:
    return ()


class _Shelled:
    """The two tools whose meaning depends on the configured shell; the gate judges what will really run."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def execute(self, context: Context, call: CommandIn) -> CommandOut:
        """Run to the end."""
        seconds = min(call.timeout_seconds, context.seconds)
        spec = command_spec(context, call.command, call.cwd, call.shell or self._shell, seconds)

        def tell(_stream: str, text: str) -> None:
            context.progress(jobs.last_line(text), None)

        done = await run(spec, permit=context.permit, on_output=tell, cancel=context.cancel)
        await _tell_refusals(context, done)
        return _command_out(call.command, done)

    async def start(self, context: Context, call: StartIn) -> JobOut:
        """Run in the background."""
        shell = call.shell or self._shell
        spec = command_spec(context, call.command, call.cwd, shell, call.timeout_seconds)
        return JobOut(**await jobs.start(context, spec, call.command, call.cwd))

    def touches(self, call: CommandIn | StartIn) -> Sequence[Touch]:
        """Name the command for the policy."""
        return runs(call.command, call.cwd, call.shell or self._shell, call.hosts)


_JOB_TOOLS: tuple[Tool, ...] = (
    declare(
        name="command_status",
        summary="Say how a background command stands and show the end of its output.",
        input=StatusIn,
        output=JobOut,
        domain="command",
        side_effect=SideEffect.READ_ONLY,
        handler=_status,
        mock=_mock_status,
        touches=_nothing,
        seconds=60.0,
    ),
    declare(
        name="stop_command",
        summary="Stop a background command with its whole tree of processes.",
        input=StopIn,
        output=JobOut,
        domain="command",
        side_effect=SideEffect.PROPOSE,
        handler=_stop,
        mock=_mock_stop,
        touches=_nothing,
        seconds=60.0,
    ),
)


def command_tools(shell: Shell = "bash") -> tuple[Tool, ...]:
    """Declare the family; `shell` is the configured one."""
    shelled = _Shelled(shell)
    execute = declare(
        name="execute_command",
        summary="Execute a shell command (bash, or PowerShell where configured) and return its output. "
        "Use for building, testing, or running system commands.",
        input=CommandIn,
        output=CommandOut,
        domain="command",
        side_effect=SideEffect.EXECUTE,
        handler=shelled.execute,
        mock=_mock_command,
        touches=shelled.touches,
        seconds=COMMAND_SECONDS + _GRACE,
    )
    start = declare(
        name="start_command",
        summary="Start a long command in the background; answers a job id for command_status.",
        input=StartIn,
        output=JobOut,
        domain="command",
        side_effect=SideEffect.EXECUTE,
        handler=shelled.start,
        mock=_mock_start,
        touches=shelled.touches,
        seconds=60.0,
    )
    return (execute, start, *_JOB_TOOLS)
