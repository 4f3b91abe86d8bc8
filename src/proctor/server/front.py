"""What all surfaces share: the application, who may come in, the workspace and profile that hold, and the way to the gate.

A direct request is the human's (law 8): it passes the gate as such and is its own root request, with a trace of its own.
"""

from __future__ import annotations

import asyncio
import getpass
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import Query

from proctor.app import App
from proctor.config import current_directory
from proctor.gate.context import ProgressCallback
from proctor.gate.humans import Human, load_token
from proctor.gate.profiles import Profile, find_profile
from proctor.gate.task_tokens import Holder, find_holder, held_call
from proctor.protocol.errors import NotFoundError, ProctorError, UsageError
from proctor.protocol.events import ActorKind
from proctor.protocol.ids import new_id
from proctor.protocol.tools import REAL, Actor, Call, CallResult
from proctor.server.auth import Access
from proctor.server.guard import Traffic
from proctor.server.holding import HOLDER
from proctor.server.hub import Hub

__all__ = ["HOLD_SECONDS", "MAX_NAME", "Front", "How", "Place"]

HOLD_SECONDS: Final = 20.0
MAX_NAME: Final = 64
Place = Annotated[str | None, Query(description="Workspace by its absolute path; the server's by default.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """Under which circumstances a call is made; what is left out holds as the server has it."""

    workspace: str | None = None
    profile: str | None = None
    trace_id: str | None = None
    key: str | None = None
    agent: str | None = None
    """Judge it as this agent's call: stricter than the human's own."""
    adapter: str = REAL
    hold_s: float = 0.0


class Front:
    """One server's state."""

    def __init__(
        self, app: App, access: Access, *, wake: Callable[[], object], workspace: Path | None = None
    ) -> None:
        self.app = app
        self.access = access
        self.wake = wake
        """Tells whoever executes that there may be something to do; may block."""
        self._workspace: Path | None = workspace or app.settings.workspace or current_directory()
        self.profile = app.settings.profile
        self.hub = Hub(lambda: app.database)
        self.sockets = 0
        self.traffic = Traffic()
        self.closers: list[Callable[[], None]] = []
        """Further streams to let go when the server ends."""
        self.closing = False
        """Whether it ends: who only watches looks away."""

    @property
    def workspace(self) -> Path:
        """Where calls work that name no place."""
        if self._workspace is None:
            raise UsageError(
                message="This server belongs to no directory: name the workspace, or run `proctor serve` in it."
            )
        return self._workspace

    @property
    def home(self) -> Path | None:
        """The same, or None in a server of all workspaces."""
        return self._workspace

    def leave_workspace(self) -> None:
        """Serve all workspaces and none in particular, as the background does."""
        self._workspace = None

    @cached_property
    def user(self) -> str:
        """The person this server works for."""
        try:
            return getpass.getuser()
        except (KeyError, OSError):
            return "human"

    def human(self, scope: Mapping[str, Any]) -> Human:
        """The person behind a request; needs the token whatever `--auth` says."""
        return self.access.human(scope, self.user)

    def profile_of(self, name: str | None = None) -> Profile:
        """The rules of that name, or those that hold here."""
        return find_profile(name or self.profile, self.app.settings.profiles)

    async def nudge(self) -> str:
        """Tell whoever executes; what was asked for is on disk, so a failure is only said (a sentence, or nothing)."""
        try:
            await asyncio.to_thread(self.wake)
        except ProctorError as error:
            return str(error)
        return ""

    def close_streams(self) -> None:
        """Let live streams go, so that the server does not wait for them."""
        self.closing = True
        self.hub.close()
        for close in self.closers:
            close()

    def warm(self) -> None:
        """Open database, registry and gate, and make the token, before the first request needs them."""
        load_token(self.access.token_file)
        _ = self.app.database, self.app.registry, self.app.gate

    async def call(
        self,
        tool: str,
        inputs: Mapping[str, Any],
        how: How | None = None,
        *,
        progress: ProgressCallback | None = None,
    ) -> CallResult:
        """Make one call through the gate; raises only for what makes no sense at all."""
        how = how or How()
        holder = HOLDER.get()
        call = self._direct(tool, inputs, how) if holder is None else self._held(tool, inputs, how, holder)
        found = self.app.registry.find(tool)
        try:
            return await self.app.gate.run(call, hold_s=how.hold_s, progress=progress)
        finally:
            if holder is None and not found.read_only:
                # The request is over, so its snapshot is only kept as long as any other backup.
                await asyncio.shield(self.app.gate.finish_run(call.run_id))

    def _direct(self, tool: str, inputs: Mapping[str, Any], how: How) -> Call:
        return Call(
            tool=tool,
            inputs=inputs,
            actor=self._actor(how.agent),
            profile=how.profile or self.profile,
            workspace=self.place(how.workspace),
            trace_id=_trace_of(how),
            adapter=how.adapter,
            idempotency_key=_key_of(how),
        )

    def _held(self, tool: str, inputs: Mapping[str, Any], how: How, holder: Holder) -> Call:
        """A call of a task's own agent: where and under which rules it acts is not its to say."""
        if any(one is not None for one in (how.workspace, how.profile, how.trace_id, how.agent)):
            message = "An agent's call acts in its task's worktree, trace and profile; leave them out."
            raise UsageError(message=message)
        return replace(
            held_call(tool, inputs, holder, self.app.settings_for(holder.workspace).profile),
            adapter=how.adapter,
            idempotency_key=_key_of(how, holder.task_id),
        )

    def holder_of(self, token: str) -> Holder | None:
        """Who holds a task's token; blocks while the database is asked."""
        with self.app.database.read() as connection:
            return find_holder(connection, token)

    def _actor(self, agent: str | None) -> Actor:
        if agent is None:
            return Actor(ActorKind.HUMAN, self.user)
        return Actor(ActorKind.AGENT, _short("agent", agent))

    def place(self, given: str | None) -> Path:
        """The workspace that was named, or the server's own."""
        if given is None:
            return self.workspace
        place = Path(given)
        if "\0" in given or not place.is_absolute():
            raise UsageError(message="Name the workspace by its absolute path.")
        if not place.is_dir():
            raise NotFoundError(kind="workspace", name=given[:200], cure="Name an existing directory.")
        return place.resolve()


def _short(what: str, name: str) -> str:
    if not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise UsageError(message=f"The {what} must have 1 to {MAX_NAME} printable characters.")
    return name


def _trace_of(how: How) -> str:
    """A repeated call must be found again in its own trace: the same key, the same trace."""
    if how.trace_id is not None:
        return _short("trace_id", how.trace_id)
    if how.key is not None:
        return "trace_" + hashlib.sha256(_key_text(how.key)).hexdigest()[:32]
    return new_id("trace")


def _key_of(how: How, task_id: str = "") -> str | None:
    """Keys of callers live apart from those the house makes itself, and those of one task from all others."""
    return None if how.key is None else "api_" + hashlib.sha256(_key_text(task_id + how.key)).hexdigest()


def _key_text(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")
