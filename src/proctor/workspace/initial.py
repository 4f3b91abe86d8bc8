"""The first settings file of a workspace: rendered from what was detected, written whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import secrets
import time
from pathlib import Path

from proctor.protocol.errors import UnavailableError, UsageError
from proctor.workspace.detect import Detected, exclude_file

__all__ = ["already_exists", "exclude_locally", "keep_replaced", "render_settings", "write_settings"]

HEAD = "# How Proctor works in this repository; `proctor config` shows every setting and where it comes from."
NO_TEST = '# test = "…"  # none was found; without one nothing can be proven'
MAX_EXCLUDE = 1_000_000


def render_settings(found: Detected) -> str:
    """About ten lines of proctor.toml."""
    lines = [HEAD, 'profile = "standard"', "", "[project]", f"name = {_quoted(found.name)}"]
    if found.base_branch:
        lines.append(f"base_branch = {_quoted(found.base_branch)}")
    for key, commands in (("setup", found.setup), ("test", found.test), ("lint", found.lint)):
        if commands:
            lines.append(f"{key} = {_commands(commands)}")
        elif key == "test":
            lines.append(NO_TEST)
    if found.agents:
        lines += ["", "[agents]", *(f"{name} = {{ driver = {_quoted(name)} }}" for name in found.agents)]
    return "\n".join(lines) + "\n"


def _commands(commands: tuple[str, ...]) -> str:
    return _quoted(commands[0]) if len(commands) == 1 else f"[{', '.join(map(_quoted, commands))}]"


def _quoted(text: str) -> str:
    """Spell a TOML string; JSON's escapes are TOML's, only DEL must be escaped as well."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def write_settings(path: Path, text: str, *, replace: bool) -> None:
    """Put the file in place in one step; without `replace` an existing one stays, also one made just now."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        try:
            _write_new(draft, text, 0o666)
            _place(draft, path, text, replace)
        finally:
            draft.unlink(missing_ok=True)
    except FileExistsError:
        raise already_exists(path) from None
    except OSError as error:
        raise _unwritable(path, error) from error


def already_exists(path: Path) -> UsageError:
    """Say that the settings are there, and how to replace them."""
    message = f"{path} already exists. See `proctor config`, or run `proctor init --force` to write it anew."
    return UsageError(message=message)


def _place(draft: Path, path: Path, text: str, replace: bool) -> None:
    if replace:
        draft.replace(path)
        return
    try:
        # A hard link never overwrites, which a rename would.
        path.hardlink_to(draft)
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}:
            raise
        _write_new(path, text, 0o666)


def _write_new(path: Path, text: str, mode: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def keep_replaced(path: Path, keep_in: Path) -> Path | None:
    """Copy a file that will be replaced to the user's data directory; None if there is none."""
    if not os.path.lexists(path):
        return None
    if path.is_dir():
        raise UsageError(message=f"{path} is a directory. Move it away and run the command again.")
    stamp = time.strftime("%Y%m%d_%H%M%S", time.gmtime())
    kept = keep_in / f"{path.parent.name}_{stamp}_{secrets.token_hex(3)}_{path.name}"
    try:
        content = path.read_bytes() if path.exists() else bytes(path.readlink())
        keep_in.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            os.fsync(file.fileno())
    except OSError as error:
        raise _unwritable(kept, error) from error
    return kept


def _unwritable(path: Path, error: OSError) -> UnavailableError:
    reason = os.strerror(error.errno or errno.EIO).lower()
    return UnavailableError(
        what=f"{path}", reason=reason, cure="Make the directory writable and run it again."
    )


def exclude_locally(root: Path, name: str) -> bool:
    """Have git ignore a file of this checkout without touching a versioned one; False if it cannot."""
    path = exclude_file(root)
    if path is None:
        return False
    try:
        path.parent.mkdir(exist_ok=True)
        # Opened for appending: what another process adds at the same moment stays.
        with path.open("a+b") as file:
            file.seek(0)
            before = file.read(MAX_EXCLUDE)
            if name.encode() not in [line.strip().lstrip(b"/") for line in before.splitlines()]:
                file.write((b"" if not before or before.endswith(b"\n") else b"\n") + name.encode() + b"\n")
    except OSError:
        return False
    return True
