"""What a leg's commands run in: variables, set-up, services, lent dependencies, limits; and a digest of it all.

The digest says which runs may be compared and cached. It leaves out what differs between machines without meaning
(HOME, user names, the terminal's width) and the values of variables that may be secrets are only hashed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proctor.config import Settings
from proctor.proof.disk import DiskLimit
from proctor.sandbox.environment import allowed_environment
from proctor.sandbox.paths import language_homes, secret_paths
from proctor.sandbox.spec import Limits

__all__ = ["SERVICE_FAILED", "Surroundings", "surroundings_of", "with_services"]

_MEANINGLESS = {"HOME", "USER", "LOGNAME", "COLUMNS", "TERM", "PATH"}
_QUIET = {
    "PYTHONDONTWRITEBYTECODE": "1",
    "NO_COLOR": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "CI": "true",
}
SERVICE_FAILED = 125
_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything about a run that is not the tree and the command."""

    env: Mapping[str, str] = field(default_factory=dict)
    setup: tuple[str, ...] = ()
    services: Mapping[str, str] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    limits: Limits = field(default_factory=lambda: Limits(seconds=_SECONDS))
    disk: DiskLimit = field(default_factory=lambda: DiskLimit(10 << 30))

    def digest(self, lent: tuple[str, ...] = ()) -> str:
        """What must be equal for two results to be comparable."""
        facts = {
            "env": {name: value for name, value in self.env.items() if name not in _MEANINGLESS},
            "setup": self.setup,
            "services": dict(self.services),
            "lent": lent,
            "system": [platform.system(), platform.machine()],
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def surroundings_of(
    settings: Settings, *, seconds: float | None = None, disk_mb: int = 10_240
) -> Surroundings:
    """Take everything from the settings; the user's secrets and Proctor's own state are hidden."""
    home = settings.environ.get("HOME", "/")
    paths = settings.paths
    hidden = (*secret_paths(home), str(paths.state_dir), str(paths.data_dir), str(paths.runtime_dir))
    limits = Limits(
        seconds=seconds or settings.limits.seconds or _SECONDS,
        grace=1.0,  # a throw-away checkout has nothing to save
        memory_mb=settings.limits.memory_mb or _memory_mb(),
        processes=512,
    )
    return Surroundings(
        env=allowed_environment(settings.environ, extra={**_QUIET, **settings.project.env}),
        setup=settings.project.setup,
        services=settings.project.services,
        hidden=(*hidden, str(paths.cache_dir / "proof")),
        # Our own interpreter too: commands may name it, and it may lie below /tmp, which is masked.
        readable=(
            *language_homes(home),
            *_programs(settings.environ.get("PATH", ""), home),
            sys.prefix,
            sys.base_prefix,
        ),
        limits=limits,
        disk=DiskLimit(disk_mb << 20),
    )


def _programs(path: str, home: str) -> tuple[str, ...]:
    """Where the programs on PATH are installed; level 2 can only read what is named. Never a whole home directory."""
    found: dict[str, None] = {}
    for folder in path.split(os.pathsep):
        prefix = Path(folder).parent
        if (
            not Path(folder).is_absolute()
            or prefix in {Path("/"), Path(home)}
            or prefix in Path(home).parents
        ):
            continue
        found[str(prefix)] = None
        with contextlib.suppress(OSError):
            # An environment borrows the library of the interpreter it was made with.
            for line in (prefix / "pyvenv.cfg").read_text().splitlines():
                name, _, value = line.partition("=")
                if name.strip() == "home" and value.strip().startswith("/"):
                    found[str(Path(value.strip()).parent)] = None
    return tuple(found)


def _memory_mb() -> int:
    """Half of the machine: a command that eats memory must not take the user's session with it."""
    return max(512, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // (2 << 20))


def with_services(command: str, services: Mapping[str, str]) -> str:
    """Put the services into the same run: they share its network, and die with it."""
    if not services:
        return command
    lines = []
    for name, service in services.items():
        log = f'"$TMPDIR"/{shlex.quote(f"service-{name}.log")}'
        lines.append(
            f"bash --noprofile --norc -c {shlex.quote(service)} >{log} 2>&1 & proctor_services+=($!)"
        )
    check = (
        'sleep 0.3; for pid in "${proctor_services[@]}"; do kill -0 "$pid" 2>/dev/null || '
        f'{{ echo "proctor: a service ended at once" >&2; cat "$TMPDIR"/service-*.log >&2; exit {SERVICE_FAILED}; }}; done'
    )
    return "\n".join(["proctor_services=()", *lines, check, command])
