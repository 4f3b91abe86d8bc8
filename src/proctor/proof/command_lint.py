"""Lint of verification commands: can it fail, does it hide its status, does it work from any directory, is it read-only.

Nothing is run. Every finding has its cure; `fix_command` applies those that cannot change what is checked.
"""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from collections.abc import Iterator
from typing import Final

from proctor.gate.policy.lists import listed
from proctor.gate.policy.resolve import Resolution, Resolved, resolve
from proctor.proof.exitstatus import Status, read_status
from proctor.proof.findings import LintFinding, Weight

__all__ = ["BLOCKING", "fix_command", "lint_command", "proves_nothing"]

#: Codes of commands whose exit status tells nothing, whatever they print.
BLOCKING: Final = frozenset({"command.never-fails", "command.only-shows", "command.hides", "command.syntax"})

_NETWORK: Final = listed("curl wget ssh scp rsync nc ncat telnet ftp ping dig nslookup gh")
_NETWORK_PAIRS: Final = listed(
    "git:fetch git:pull git:clone git:push pip:install pip:download npm:install npm:ci npm:publish yarn:add pnpm:install "
    "go:get cargo:install apt:install apt-get:install brew:install docker:pull docker:push"
)
_LOOPBACK: Final = re.compile(r"(?:^|//|@)(?:localhost|127\.[0-9.]+|\[?::1\]?|0\.0\.0\.0)(?:[:/]|$)")
_URL: Final = re.compile(r"\b(?:https?|wss?|ftp|ssh|git)://[^\s'\"]+")
_WRITERS: Final = listed("rm mv cp touch mkdir rmdir ln chmod chown truncate install patch dd unlink")
_GIT_WRITES: Final = listed(
    "add commit checkout switch restore reset stash apply am merge rebase clean rm mv tag cherry-pick revert"
)
_AWAY: Final = ("/tmp/", "/var/tmp/", "/dev/null", "/dev/stdout", "/dev/stderr", "/dev/fd/", "$TMP", "${TMP")  # noqa: S108
_CWD_PROGRAMS: Final = listed(
    "pytest make npm pnpm yarn npx cargo go tox nox jest vitest mvn gradle just task git ruff mypy tsc eslint"
)
_HERE_OPTIONS: Final = frozenset(
    {"-C", "--directory", "--prefix", "--manifest-path", "--rootdir", "--git-dir", "--cwd", "--project", "-f"}
)
_FILE: Final = re.compile(r"(?:\.{1,2}/)?[\w@%+=.-]+(?:/[\w@%+=.*-]+)*(?:\.[A-Za-z][\w]{0,7}|/)(?:::.*)?")
_PLACEHOLDER: Final = re.compile(
    r"/path/to\b|\bpath/to/|<[a-z][a-z _-]+>|\bTODO\b|\bTBD\b|\bYOUR_[A-Z_]+\b|\{[A-Z_]{3,}\}|^\.\.\.$"
)
_TAIL: Final = re.compile(
    r"\s*(?:\|\|\s*(?:true|:|echo\b[^|;&]*|printf\b[^|;&]*)|;\s*(?:true|:|echo\b[^|;&]*)|(?<!&)&)\s*$"
)
_PIPED: Final = re.compile(
    r"\s*\|\s*(?:head|tail|wc|cat|tee|less|more|nl|sort|uniq)\b(?:\s+-[\w=]+|\s+[0-9]+)*\s*$"
)


def lint_command(text: str, place: str = "command", *, line: int = 0) -> list[LintFinding]:
    """Everything that is wrong with one command; never raises, whatever the text is."""
    found = [
        LintFinding(*one[:2], place, *one[2:4], line=line, fixable=one[0] in _FIXABLE) for one in _all(text)
    ]
    return list({one.code: one for one in reversed(found)}.values())[::-1]


def proves_nothing(text: str) -> str | None:
    """The sentence that says why the exit status of a command tells nothing, or None if it can tell."""
    found = [one for one in lint_command(text) if one.code in BLOCKING]
    return found[0].sentence if found else None


def fix_command(text: str, root: str | None = None) -> str:
    """Apply the cures that keep what is checked: status swallowers, pagers and line breaks go; `root` is entered first."""
    fixed = text.strip()
    if "\n" in fixed and "<<" not in fixed and not read_status(fixed).broken:
        fixed = " && ".join(
            line.strip().rstrip(";").removesuffix("&&").strip() for line in fixed.splitlines() if line.strip()
        )
    for _ in range(8):
        shorter = _PIPED.sub("", _TAIL.sub("", fixed))
        if shorter == fixed or not shorter or read_status(shorter).broken or _worth(shorter) <= _worth(fixed):
            break
        fixed = shorter
    if root is not None and any(one.code == "command.directory" for one in lint_command(fixed)):
        fixed = (
            f"cd {shlex.quote(root)} && {{ {fixed.rstrip(';')}; }}"
            if _joined(fixed)
            else f"cd {shlex.quote(root)} && {fixed}"
        )
    return fixed if not read_status(fixed).broken else text


def _joined(text: str) -> bool:
    return any(word in text for word in (";", "||", "|"))


def _worth(text: str) -> int:
    status = read_status(text)
    return (not status.never) + (not status.hides)


_FIXABLE: Final = frozenset({"command.never-fails", "command.hides", "command.lines"})

_Found = tuple[str, Weight, str, str]


def _all(text: str) -> Iterator[_Found]:
    if not text.strip():
        yield (
            "command.empty",
            Weight.ERROR,
            "The command is empty.",
            "Write one that fails without the fix and passes with it.",
        )
        return
    if "\n" in text.strip():
        yield (
            "command.lines",
            Weight.ERROR,
            "The command has several lines.",
            "Join them with && on one line.",
        )
    if _PLACEHOLDER.search(text):
        yield (
            "command.placeholder",
            Weight.ERROR,
            "The command holds a placeholder.",
            "Write the real path or value.",
        )
    status = read_status(text)
    if status.broken:
        yield (
            "command.syntax",
            Weight.ERROR,
            "The command cannot be read as bash.",
            "Check quotes, brackets and operators.",
        )
        return
    yield from _status(status)
    resolution = resolve(text)
    yield from _python(resolution)
    yield from _network(text, resolution)
    yield from _writes(resolution)
    if _directory(resolution):
        sentence = "The command depends on the directory it is started in."
        yield (
            "command.directory",
            Weight.WARNING,
            sentence,
            "Begin with `cd /absolute/path/of/the/project && …` or name files by absolute path.",
        )


def _status(status: Status) -> Iterator[_Found]:
    if status.only_shows and not status.hides:
        sentence = "The command only shows something; it passes with and without the fix."
        yield (
            "command.only-shows",
            Weight.ERROR,
            sentence,
            "Let it check: grep -q, test, diff, or an assertion.",
        )
    elif status.never and not status.hides:
        by = f" (`{status.swallowed_by[:60]}`)" if status.swallowed_by else ""
        yield (
            "command.never-fails",
            Weight.ERROR,
            f"The command can never fail{by}.",
            "Let the check's own status be the last word.",
        )
    elif status.hides:
        part, by = status.hides[-1]
        weight = Weight.ERROR if status.never or by.startswith("|") or status.background else Weight.WARNING
        code = "command.hides" if weight is Weight.ERROR else "command.sequence"
        yield (
            code,
            weight,
            f"`{by[:40]}` hides the status of `{part[:60]}`.",
            "Join with && and leave the pager out.",
        )


def _python(resolution: Resolution) -> Iterator[_Found]:
    for command in _commands(resolution):
        words = command.argv
        if not re.fullmatch(r"python[\d.]*", words[0] or "") or "-c" not in words:
            continue
        place = words.index("-c") + 1
        code = words[place] if place < len(words) else None
        if code is not None and (problem := _python_error(code)):
            cure = "Run it once by hand; a one-liner cannot hold a block after a semicolon."
            yield (
                "command.syntax",
                Weight.ERROR,
                f"The Python text of the command is broken: {problem}.",
                cure,
            )


def _python_error(code: str) -> str | None:
    if len(code) > 32 * 1024:
        return "it is too long"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(code)
    except SyntaxError as error:
        return str(error.msg)
    except (ValueError, RecursionError, MemoryError):
        return "it cannot be read"
    return None


def _commands(resolution: Resolution) -> list[Resolved]:
    """Commands with their spelled words; python -c is a wrapper whose text the policy re-reads, so origins count too."""
    return [command for command in resolution.commands if command.words]


def _network(text: str, resolution: Resolution) -> Iterator[_Found]:
    urls = [url for url in _URL.findall(text) if not _LOOPBACK.search(url)]
    local = _LOOPBACK.search(text) is not None or bool(re.search(r"\blocalhost\b|127\.0\.0\.1", text))
    for command in _commands(resolution):
        name, rest = command.argv[0] or "", [word for word in command.argv[1:] if word]
        pair = f"{name}:{next((word for word in rest if not word.startswith('-')), '')}"
        if urls or pair in _NETWORK_PAIRS or (name in _NETWORK and not local):
            cure = "Proof runs without network: check against a file, a local server or a recorded answer."
            yield "command.network", Weight.WARNING, "The command uses the network.", cure
            return


def _writes(resolution: Resolution) -> Iterator[_Found]:
    for command in _commands(resolution):
        words = [word or "" for word in command.argv]
        if _writer(words) and not any(word.startswith(_AWAY) for word in words[1:]):
            yield _WRITES
            return
    for redirect in resolution.redirects:
        target = redirect.target.text or ""
        if (
            redirect.operator not in {"<", "<&", ">&"}
            and target
            and not target.startswith(_AWAY)
            and not target.isdigit()
        ):
            yield _WRITES
            return


_WRITES: Final = (
    "command.writes",
    Weight.WARNING,
    "The command writes to the repository.",
    "Checks only read: write to a temporary directory (mktemp -d) or leave it out.",
)


def _writer(words: list[str]) -> bool:
    name, rest = words[0], words[1:]
    if name == "git":
        return next((word for word in rest if not word.startswith("-")), "") in _GIT_WRITES
    if name == "sed":
        return any(re.match(r"-[a-zA-Z]*i|--in-place", word) for word in rest)
    return name in _WRITERS or (name == "tee" and any(not word.startswith("-") for word in rest))


def _directory(resolution: Resolution) -> bool:
    return any(_depends(command) for command in _commands(resolution))


def _depends(command: Resolved) -> bool:
    if all(place.startswith("/") for place in command.origin.places):
        return False
    words = [word or "" for word in command.argv]
    name, rest = words[0], words[1:]
    if name in {"cd", "echo", "printf", "export"}:
        return False
    if command.script and not name.startswith("/"):
        return True
    if name in _CWD_PROGRAMS:
        return not any(word.split("=")[0] in _HERE_OPTIONS or word.startswith("/") for word in rest)
    files = rest[1:] if name in {"grep", "sed", "awk", "rg"} else rest
    return any(_relative_file(word) for word in files)


def _relative_file(word: str) -> bool:
    return (
        bool(word)
        and not word.startswith(("/", "-", "~", "$", "http", "ws:"))
        and _FILE.fullmatch(word) is not None
    )
