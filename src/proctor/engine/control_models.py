"""What the control tools take and give."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from proctor.protocol.states import TaskState
from proctor.tools.models import Moment, Stored, ToolInput, ToolOutput

__all__ = [
    "LISTED",
    "LONG",
    "AddIn",
    "AddOut",
    "AttemptOut",
    "ListIn",
    "ListOut",
    "NameIn",
    "PauseOut",
    "ScopeIn",
    "ShowOut",
    "StatusOut",
    "StopIn",
    "StopOut",
    "TaskOut",
]

LISTED: Final = 50
LONG: Final = 20_000
TaskName = Annotated[
    str, Stored, Field(min_length=1, max_length=64, description="Its id, or a unique beginning.")
]


class AddIn(ToolInput):
    """What is to be done."""

    description: Annotated[str, Stored] = Field(
        min_length=1, max_length=LONG, description="What the agent is to do, complete in itself."
    )
    agent: Annotated[str, Stored] | None = Field(
        default=None, max_length=100, description="Who is to do it; chosen by what it is good at by default."
    )
    priority: int = Field(default=5, ge=1, le=10, description="10 is critical.")
    files: list[Annotated[str, Stored, Field(max_length=4096)]] = Field(
        default_factory=list, max_length=200, description="Files it is about."
    )
    after: list[TaskName] = Field(default_factory=list, max_length=50, description="Tasks to wait for.")


class ListIn(ToolInput):
    """Which tasks."""

    status: list[TaskState] = Field(default_factory=list, description="Only these; open ones by default.")
    limit: int = Field(default=20, ge=1, le=LISTED)


class NameIn(ToolInput):
    """Which task."""

    task: TaskName


class ScopeIn(ToolInput):
    """Where; everywhere by default."""

    agent: Annotated[str, Stored] | None = Field(
        default=None, max_length=90, description="Only this agent's tasks."
    )


class StopIn(ToolInput):
    """What is to stop."""

    task: TaskName | None = Field(
        default=None, description="Only this one; all open tasks of the workspace by default."
    )


class TaskOut(BaseModel):
    """A task."""

    model_config = ConfigDict(frozen=True)

    task_id: str
    status: TaskState
    description: str
    agent: str | None
    priority: int
    created_at: Moment
    error: str | None = None
    branch: str | None = Field(default=None, description="Where its work is committed.")
    simulated: bool = False


class AddOut(ToolOutput):
    """The task that was added."""

    task: TaskOut
    message: str


class ListOut(ToolOutput):
    """Tasks, the newest first."""

    tasks: list[TaskOut]
    truncated: bool = False


class AttemptOut(BaseModel):
    """One try."""

    model_config = ConfigDict(frozen=True)

    attempt: int
    agent: str
    outcome: str
    started_at: Moment
    ended_at: Moment | None
    tokens: int
    error: str | None = None


class ShowOut(ToolOutput):
    """One task with every try."""

    task: TaskOut
    result: str = Field(default="", description="What its agent said at the end; a claim, not a proof.")
    commit: str | None = None
    attempts: list[AttemptOut]
    truncated: bool = False


class StatusOut(ToolOutput):
    """Everything at one moment."""

    needs_you: list[str] = Field(description="What waits for a person.")
    running: list[str]
    waiting: dict[str, int] = Field(description="How many tasks wait, by state.")
    finished: list[str]
    paused: list[str]
    truncated: bool = False


class PauseOut(ToolOutput):
    """What changed."""

    changed: list[str]
    paused: list[str] = Field(description="Where nothing new begins now.")
    message: str


class StopOut(ToolOutput):
    """What is ending."""

    tasks: list[TaskOut]
    message: str
    truncated: bool = False
