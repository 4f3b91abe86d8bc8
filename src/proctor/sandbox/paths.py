"""Which parts of the file system a command sees: one plan, from which each mechanism builds its own rules.

Deeper paths win over their parents, so a worktree inside a hidden directory is writable and its hooks are not.
Every path is resolved first (`resolved`): a rule on a symbolic link would protect the link, not its target.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from proctor.sandbox.spec import Spec, SpecError

__all__ = [
    "SYSTEM_ROOTS",
    "Kind",
    "Mount",
    "carve",
    "language_homes",
    "mounts",
    "resolved",
    "secret_paths",
    "within",
]

SYSTEM_ROOTS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/snap"),
    *("/proc", "/sys", "/var/lib/dpkg", "/var/cache/fontconfig", "/home/linuxbrew"),
)
_TEMPORARY = ("/tmp", "/run")  # noqa: S108 - these are replaced by private ones
_CARVE_CAP = 4096


class Kind(StrEnum):
    """What a path is to the command; of two rules for one path the later in this list wins."""

    TEMPORARY = "temporary"
    READABLE = "readable"
    WRITABLE = "writable"
    PROTECTED = "protected"
    HIDDEN = "hidden"
    PLACED = "placed"  # something from elsewhere, writable
    SHARED = "shared"  # something from elsewhere, read-only


@dataclass(frozen=True, slots=True)
class Mount:
    """One rule of the plan; directories and files are treated apart."""

    path: str
    kind: Kind
    directory: bool
    source: str = ""


def within(path: str, root: str) -> bool:
    """Say whether a path is a directory or lies in it; `/repo-evil` is not in `/repo`."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def resolved(spec: Spec) -> Spec:
    """The same command with every path resolved, once; the other functions here rely on it."""
    known: dict[str, str] = {}

    def real(path: str) -> str:
        if path not in known:
            known[path] = os.path.realpath(path)
        return known[path]

    return replace(
        spec,
        cwd=real(spec.cwd),
        writable=tuple(map(real, spec.writable)),
        readable=tuple(map(real, spec.readable)),
        hidden=tuple(map(real, spec.hidden)),
        protected=tuple(map(real, spec.protected)),
        placed=tuple(
            replace(each, source=real(each.source), target=real(each.target)) for each in spec.placed
        ),
    )


def mounts(spec: Spec, guarded: tuple[str, ...], anchors: tuple[str, ...]) -> list[Mount]:
    """Plan the view: parents before children, only rules that change something, only paths that exist.

    Anchors are directories mounted upon themselves, so that nobody can move them aside.
    """
    wanted: dict[str, Kind] = {}
    order = list(Kind)
    groups = {
        Kind.TEMPORARY: _TEMPORARY,
        Kind.READABLE: (*spec.readable, spec.cwd),
        Kind.WRITABLE: (*spec.writable, *anchors),
        Kind.PROTECTED: (*guarded, *spec.protected),
        Kind.HIDDEN: spec.hidden,
        Kind.PLACED: [each.target for each in spec.placed if each.writable],
        Kind.SHARED: [each.target for each in spec.placed if not each.writable],
    }
    for kind in order:
        for path in groups[kind]:
            _check(path, kind, wanted)
            # A working directory that is writable by another rule stays so.
            if kind is not Kind.READABLE or path not in wanted:
                wanted[path] = kind
    return _effective(wanted, {each.target: each.source for each in spec.placed})


def _check(path: str, kind: Kind, wanted: dict[str, Kind]) -> None:
    if kind in {Kind.WRITABLE, Kind.PLACED, Kind.SHARED} and path == "/":
        raise SpecError(problem="the whole file system cannot be writable", cure="Name the workspace.")
    if kind is Kind.WRITABLE and not os.access(path, os.F_OK):
        raise SpecError(problem=f"the writable path {path} does not exist", cure="Make it first.")
    if kind is Kind.HIDDEN and wanted.get(path) is Kind.WRITABLE:
        raise SpecError(problem=f"{path} cannot be both writable and hidden", cure="Choose one.")


def _effective(wanted: dict[str, Kind], sources: dict[str, str]) -> list[Mount]:
    plan: list[Mount] = []
    for path in sorted(wanted, key=lambda name: (name.count("/"), name)):
        kind, over = wanted[path], _covering(path, plan)
        masked = over is not None and over.kind in {Kind.TEMPORARY, Kind.HIDDEN}
        pointless = kind in {Kind.TEMPORARY, Kind.HIDDEN} and masked
        pointless = pointless or (kind is Kind.READABLE and not masked)
        pointless = pointless or (kind is Kind.PROTECTED and not _open(over))
        source = sources.get(path, "") if kind in {Kind.PLACED, Kind.SHARED} else ""
        if not pointless and (mode := _mode(source or path)) is not None:
            plan.append(Mount(path, kind, stat.S_ISDIR(mode), source))
    return plan


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode  # noqa: PTH116 - called for every path of every command
    except OSError:
        return None


def _covering(path: str, plan: list[Mount]) -> Mount | None:
    """The deepest rule above a path; the plan is sorted, so the last one found."""
    return next((mount for mount in reversed(plan) if mount.path != path and within(path, mount.path)), None)


def _open(mount: Mount | None) -> bool:
    return mount is not None and mount.kind is Kind.WRITABLE


def carve(roots: tuple[str, ...], hidden: tuple[str, ...]) -> list[str]:
    """List what lies in the roots without what is hidden, for mechanisms that can only allow.

    A directory on the way to a hidden path is replaced by its entries; beyond a cap it is left out whole.
    """
    found: list[str] = []
    queue = [root for root in roots if os.access(root, os.F_OK) and not os.path.islink(root)]  # noqa: PTH114
    while queue:
        path = queue.pop()
        if any(within(path, secret) for secret in hidden):
            continue
        if not any(within(secret, path) for secret in hidden):
            found.append(path)
            continue
        try:
            entries = [entry.path for entry in os.scandir(path) if not entry.is_symlink()]
        except OSError:
            continue
        queue += entries if len(entries) <= _CARVE_CAP else []
    return sorted(set(found))


def secret_paths(home: str) -> tuple[str, ...]:
    """Where people keep keys, tokens and sessions; to be hidden from every command. Missing ones are harmless."""
    below_home = (
        *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".pgpass", ".git-credentials"),
        *(
            ".npmrc",
            ".pypirc",
            ".config/gh",
            ".config/glab-cli",
            ".config/gcloud",
            ".config/hub",
            ".config/op",
        ),
        *(".config/git/credentials", ".config/containers", ".cargo/credentials.toml", ".cargo/credentials"),
        *(".claude", ".claude.json", ".codex", ".gemini", ".qwen", ".password-store", ".vault-token"),
        *(
            ".local/share/keyrings",
            ".mozilla",
            ".config/google-chrome",
            ".config/chromium",
            ".config/BraveSoftware",
        ),
        *(".bash_history", ".zsh_history", ".python_history", ".node_repl_history", ".psql_history"),
        *("Library/Keychains", "Library/Application Support/Google/Chrome", "Library/Cookies"),
    )
    system = ("/etc/shadow", "/etc/gshadow", "/var/run/docker.sock", "/run/containerd", "/var/lib/docker")
    return tuple(f"{home}/{name}" for name in below_home) + system


def language_homes(home: str) -> tuple[str, ...]:
    """Where languages install themselves for one user; readable where only allow-lists exist (level 2)."""
    names = (
        *(
            ".pyenv",
            ".nvm",
            ".cargo",
            ".rustup",
            ".rbenv",
            ".asdf",
            ".volta",
            ".sdkman",
            ".bun",
            ".deno",
            "go",
        ),
        *(".local/bin", ".local/lib", ".local/share/uv", ".local/share/mise", ".gitconfig", ".config/git"),
    )
    return tuple(place for name in names if Path(place := f"{home}/{name}").exists())
