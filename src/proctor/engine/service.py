"""The supervisor as a service of the user's session manager: a systemd user unit, or a launchd agent on macOS.

Install writes one file and, where the manager answers, has it loaded; uninstall undoes exactly that. No secret is ever
written: the file is outside what the sandbox hides from agents.
"""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.config import Paths, hide_password, is_secret_name
from proctor.protocol.errors import RefusedError, UnavailableError

__all__ = ["NAME", "Manager", "Outcome", "Service", "plan"]

NAME = "proctor"
LABEL = "dev.proctor.supervisor"
MARK = "Written by `proctor service install`; `proctor service uninstall` removes it."
COMMAND_SECONDS = 30.0
# What a supervisor must share with the commands, or they would not find each other; PATH finds the agents' programs.
KEPT = ("PATH", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")
PREFIXES = ("PROCTOR_", "DB_")


@dataclass(frozen=True, slots=True)
class Manager:
    """How one service manager is spoken to."""

    kind: str
    load: tuple[tuple[str, ...], ...]
    unload: tuple[tuple[str, ...], ...]
    state: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was done, and what is left to the user."""

    changed: bool
    loaded: bool
    todo: str
    """The command to run by hand; empty when nothing is left."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Service:
    """One file, its content, and its manager."""

    path: Path
    content: str
    manager: Manager
    environ: Mapping[str, str]

    def installed(self) -> bool:
        """Whether a file of ours is there."""
        return _ours(self.path)

    def current(self) -> bool:
        """Whether it is the very file that would be written now."""
        return self.installed() and self.path.read_text() == self.content

    def install(self) -> Outcome:
        """Write the file and have it loaded; when the manager does not answer, say what to run later."""
        if self.path.exists() and not self.installed():
            raise RefusedError(
                reason=f"{self.path} was not written by Proctor", cure="Move it away and run this again."
            )
        changed = not self.current()
        if changed:
            _write(self.path, self.content)
        reason = self._run(self.manager.load)
        return Outcome(changed, not reason, _by_hand(self.manager.load) if reason else "", reason)

    def uninstall(self) -> Outcome:
        """Have it unloaded and remove the file; nothing else is touched."""
        if not self.path.exists():
            return Outcome(False, False, "")
        if not self.installed():
            raise RefusedError(
                reason=f"{self.path} was not written by Proctor", cure="Remove it yourself if you want."
            )
        reason = self._run(self.manager.unload[:1])
        self.path.unlink()
        self._run(self.manager.unload[1:])
        return Outcome(True, False, _by_hand(self.manager.unload) if reason else "", reason)

    def state(self) -> str:
        """What the manager says: active, inactive, failed … or why it says nothing."""
        code, said = _call(self.manager.state, self.environ)
        words = said.splitlines()[0][:200] if said else ""
        if self.manager.kind == "launchd":
            return "loaded" if code == 0 else "not loaded"
        known = words in {"active", "inactive", "failed", "activating", "deactivating", "reloading"}
        return words if known else f"unknown ({words or 'no answer'})"

    def _run(self, commands: Sequence[Sequence[str]]) -> str:
        """Run all; the first failure's words, or nothing."""
        for command in commands:
            code, said = _call(command, self.environ)
            if code != 0:
                return said.splitlines()[0][:200] if said else f"{command[0]} ended with {code}"
        return ""


def plan(environ: Mapping[str, str], paths: Paths, *, platform: str, python: str) -> Service:
    """Decide file and content for this user and machine; refuses what would put a secret into the file."""
    kept = _environment(environ)
    command = [python, "-m", "proctor", "supervisor", "--idle", "0", "--wait"]
    if platform == "darwin":
        home = Path(environ.get("HOME") or Path.home())
        path = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        return Service(path, _plist(command, kept, paths), _launchd(path), environ)
    if platform != "linux":
        raise UnavailableError(
            what="A service", reason=f"{platform} is not supported", cure="Run `proctor supervisor --idle 0`."
        )
    return Service(_unit_path(environ), _unit(command, kept), _systemd(), environ)


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in environ.items() if name in KEPT or name.startswith(PREFIXES)}
    for name, value in kept.items():
        if value and (is_secret_name(name) or hide_password(value) != value):
            raise RefusedError(
                reason=f"{name} holds a secret, and a service file is no place for one",
                cure="Put a password into ~/.pgpass and a key into its file, unset the variable and run this again.",
            )
    return dict(sorted((name, value) for name, value in kept.items() if value))


# systemd


def _unit_path(environ: Mapping[str, str]) -> Path:
    given = environ.get("XDG_CONFIG_HOME", "")
    base = Path(given) if Path(given).is_absolute() else Path(environ.get("HOME") or Path.home()) / ".config"
    return base / "systemd" / "user" / f"{NAME}.service"


def _systemd() -> Manager:
    base, unit = ("systemctl", "--user"), f"{NAME}.service"
    reload = (*base, "daemon-reload")
    return Manager(
        "systemd",
        load=(reload, (*base, "enable", "--now", unit)),
        unload=((*base, "disable", "--now", unit), reload),
        state=(*base, "is-active", unit),
    )


def _unit(command: Sequence[str], environ: Mapping[str, str]) -> str:
    lines = [
        f"# {MARK}",
        "[Unit]",
        "Description=Proctor supervisor",
        "",
        "[Service]",
        "ExecStart=" + " ".join(_quoted(word.replace("$", "$$")) for word in command),
        *(f"Environment={_quoted(f'{name}={value}')}" for name, value in environ.items()),
        "WorkingDirectory=/",
        "Restart=on-failure",
        "RestartSec=5",
        "KillMode=mixed",
        "TimeoutStopSec=30",
        "",
        "[Install]",
        "WantedBy=default.target",
        "",
    ]
    return "\n".join(lines)


def _quoted(word: str) -> str:
    """A word as systemd reads it: specifiers doubled, C escapes inside double quotes."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return '"' + escaped.replace("\n", "\\n").replace("\t", "\\t") + '"'


# launchd


def _launchd(path: Path) -> Manager:
    domain = f"gui/{os.getuid()}"
    return Manager(
        "launchd",
        load=(("launchctl", "bootstrap", domain, str(path)),),
        unload=(("launchctl", "bootout", f"{domain}/{LABEL}"),),
        state=("launchctl", "print", f"{domain}/{LABEL}"),
    )


def _plist(command: Sequence[str], environ: Mapping[str, str], paths: Paths) -> str:
    content = {
        "Label": LABEL,
        "ProgramArguments": list(command),
        "EnvironmentVariables": dict(environ),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "WorkingDirectory": "/",
        "StandardErrorPath": str(paths.state_dir / "supervisor.err"),
        "Comment": MARK,
    }
    return plistlib.dumps(content).decode()


# Files and programs


def _ours(path: Path) -> bool:
    try:
        return MARK in path.read_text(errors="replace")
    except OSError:
        return False


def _write(path: Path, content: str) -> None:
    """Put the whole file in place at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(content)
        aside.chmod(0o600)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def _call(command: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str]:
    program = shutil.which(command[0], path=environ.get("PATH", os.defpath))
    if program is None:
        return 127, f"{command[0]} is not installed"
    try:
        done = subprocess.run(
            [program, *command[1:]],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_SECONDS,
            text=True,
            errors="replace",
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 126, f"{command[0]}: {error}"
    return done.returncode, done.stdout.strip()


def _by_hand(commands: Sequence[Sequence[str]]) -> str:
    return " && ".join(" ".join(command) for command in commands)
