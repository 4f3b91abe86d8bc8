"""Where Proctor keeps what it remembers: one state per user, found through the XDG variables.

Nothing here touches the disk; who needs a directory makes it.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from proctor.protocol.errors import ConfigError

__all__ = ["Paths"]

# A unix socket's address holds 104 bytes on macOS and 108 on Linux; beyond that bind() fails.
SOCKET_BYTES = 100


@dataclass(frozen=True, slots=True)
class Paths:
    """The four directories of one user, and what lies in them."""

    state_dir: Path
    data_dir: Path
    cache_dir: Path
    runtime_dir: Path

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Paths:
        """Find the directories; an XDG variable that is not an absolute path is ignored, as XDG demands."""
        state = _base(environ, "XDG_STATE_HOME", ".local/state") / "proctor"
        data = _base(environ, "XDG_DATA_HOME", ".local/share") / "proctor"
        cache = _base(environ, "XDG_CACHE_HOME", ".cache") / "proctor"
        return cls(state_dir=state, data_dir=data, cache_dir=cache, runtime_dir=_runtime(environ, state))

    @property
    def proctor_db(self) -> Path:
        """Our tables and the trace."""
        return self.state_dir / "proctor.db"

    @property
    def engine_db(self) -> Path:
        """The durable engine's own database."""
        return self.state_dir / "engine.db"

    @property
    def token_file(self) -> Path:
        """The token that lets a human in; mode 0600."""
        return self.state_dir / "token"

    @property
    def address_file(self) -> Path:
        """Where this user's server can be reached, while it runs."""
        return self.state_dir / "server.json"

    @property
    def browsers_file(self) -> Path:
        """Which browsers are signed in; hashes only, mode 0600."""
        return self.state_dir / "browsers.json"

    @property
    def key_file(self) -> Path:
        """The trace's key: outside the database, so that who edits one cannot mend the other."""
        return self.state_dir / "trace.key"

    @property
    def log_file(self) -> Path:
        """The supervisor's log."""
        return self.state_dir / "orchestrator.log"

    @property
    def socket(self) -> Path:
        """Where the supervisor listens for this user's commands."""
        return self.runtime_dir / "proctor.sock"

    @property
    def backups_dir(self) -> Path:
        """Backups and snapshots."""
        return self.data_dir / "backups"

    @property
    def blobs_dir(self) -> Path:
        """Outputs too large for a row, by their hash."""
        return self.data_dir / "blobs"

    @property
    def worktrees_dir(self) -> Path:
        """Checkouts in which agents work: `wt/<repo>/<session>/<task>`."""
        return self.data_dir / "wt"


def _base(environ: Mapping[str, str], variable: str, below_home: str) -> Path:
    given = environ.get(variable, "")
    return Path(given) if Path(given).is_absolute() else _home(environ) / below_home


def _home(environ: Mapping[str, str]) -> Path:
    given = environ.get("HOME", "")
    if Path(given).is_absolute():
        return Path(given)
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        problem = "there is no home directory to keep the state in"
        raise ConfigError(where="environment HOME", problem=problem, allowed="Set HOME.") from None


def _runtime(environ: Mapping[str, str], state: Path) -> Path:
    given = environ.get("XDG_RUNTIME_DIR", "")
    if not Path(given).is_absolute():
        return state
    wanted = Path(given) / "proctor"
    return wanted if len(os.fsencode(wanted / "proctor.sock")) < SOCKET_BYTES else state
