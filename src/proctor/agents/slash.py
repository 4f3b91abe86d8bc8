"""The slash commands people type in their own CLI agent to work with Proctor; one table for files and for MCP prompts.

A command's text is an instruction to the agent. `{{arguments}}` is what the user typed behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from proctor.protocol.errors import NotFoundError

__all__ = ["ARGUMENTS", "COMMANDS", "Command", "find_command"]

ARGUMENTS: Final = "{{arguments}}"


@dataclass(frozen=True, slots=True)
class Command:
    """One slash command."""

    name: str
    summary: str
    text: str
    takes: str = ""
    """What may stand behind it; empty: nothing."""
    needs: bool = False
    tools: tuple[str, ...] = ()
    """Tools of Proctor it uses."""
    programs: tuple[str, ...] = ()
    """Command lines it runs."""

    def text_with(self, given: str) -> str:
        """The instruction with what the user typed."""
        return self.text.replace(ARGUMENTS, given.strip() or "(nothing)")


_ALL: Final = (
    Command(
        "orchestrate",
        "Give work to Proctor's agents",
        f"""Give this work to Proctor: {ARGUMENTS}

Cut it into the fewest tasks that can be done independently and be checked on their own; one is often enough.
For each task call Proctor's tool `add_task` with a description that is complete in itself: files, what must hold
afterwards, how to see it. Name in `after` the tasks it must wait for. Then say for each task its id and what it is to
do, and that `/orch-status` shows how they stand. Do not do the work yourself. If a result has status
approval_pending, tell the user the command it names.""",
        takes="what is to be done",
        needs=True,
        tools=("add_task", "list_tasks", "show_task"),
    ),
    Command(
        "orch-status",
        "How Proctor's tasks stand",
        f"""Call Proctor's tool `get_status`, and `show_task` for the task named here, if one is: {ARGUMENTS}

Say first what needs the user, with the command to type, then what runs, what waits and what has finished. What an agent says
about its own work is a claim; call nothing proven that Proctor did not call so.""",
        takes="a task, or nothing",
        tools=("get_status", "list_tasks", "show_task"),
    ),
    Command(
        "orch-review",
        "Have Proctor check the current change",
        f"""Run `proctor check` in the repository, with this branch, commit or range if one is named: {ARGUMENTS}

Without one it judges the work that is not committed, else the branch. Report its verdicts word for word: what is
proven, refuted, inconclusive or hollow, and do not soften a refusal. Reviews by a peer agent do not exist in this
version of Proctor; the check runs the tests without the change and with it, and shows what the change really does.
Change nothing.""",
        takes="a range of commits, or nothing",
        programs=("proctor check",),
    ),
    Command(
        "orch-pause",
        "Let Proctor begin no new task",
        f"""Call Proctor's tool `pause_work`, for this agent only if one is named: {ARGUMENTS}

Say what is paused now and that `/orch-resume` goes on.""",
        takes="an agent, or nothing",
        tools=("pause_work",),
    ),
    Command(
        "orch-resume",
        "Let Proctor begin new tasks again",
        f"""Call Proctor's tool `resume_work`, for this agent only if one is named: {ARGUMENTS}

Say what is still paused, if anything is.""",
        takes="an agent, or nothing",
        tools=("resume_work",),
    ),
    Command(
        "orch-stop",
        "Stop Proctor's tasks",
        f"""Call Proctor's tool `stop_tasks`, for this task only if one is named: {ARGUMENTS}

Say which tasks are ending. Their work is kept on their branches, and `proctor tasks retry TASK` opens one again.""",
        takes="a task, or nothing for all open tasks of this repository",
        tools=("stop_tasks",),
    ),
)
COMMANDS: Final[Mapping[str, Command]] = MappingProxyType({one.name: one for one in _ALL})


def find_command(name: str) -> Command:
    """One of them by its name."""
    if name not in COMMANDS:
        raise NotFoundError(kind="command", name=name[:80], cure=f"Known: {', '.join(COMMANDS)}.")
    return COMMANDS[name]
