"""From the words in the line to the commands that really run: names made canonical, wrappers stripped, texts re-read.

Invariant: depth and number are limited, and reaching a limit is a finding that asks.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from proctor.gate.policy.decision import Finding
from proctor.gate.policy.findings import finding
from proctor.gate.policy.lists import listed
from proctor.gate.policy.shell import HERE, MAX_COMMANDS, Redirect, Script, Simple, read_script
from proctor.gate.policy.words import Word
from proctor.gate.policy.wrappers import INTERPRETERS, is_wrapper, unwrap

__all__ = ["MAX_DEPTH", "Resolution", "Resolved", "fetches", "resolve", "views_of_line"]

MAX_DEPTH: Final = 6

_ALIASES: Final = {
    "gmake": "make", "nodejs": "node", "pip3": "pip", "gsed": "sed", "gawk": "awk", "mawk": "awk", "nawk": "awk",
    "egrep": "grep", "fgrep": "grep", "zgrep": "grep", "gfind": "find", "fdfind": "fd", "batcat": "bat", "grm": "rm",
    "gdd": "dd", "docker-compose": "docker compose", "py": "python", "pypy": "python", "pypy3": "python",
}  # fmt: skip
_VERSIONED: Final = re.compile(r"(python|pip|node|ruby|perl|php|lua|gcc|clang|mkfs)(?:[.\d-][\w.-]*)?")
_SYSTEM_BINS: Final = frozenset(
    {"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"}
)
_TOOL_BINS: Final = re.compile(r"(?:\./)?(?:[\w.-]+/)*(?:\.?v?env[\w.-]*/bin|node_modules/\.bin|vendor/bin)")
_NAME: Final = re.compile(r"[\w.+\[:-]+")
# git's own options before the subcommand that change nothing of what runs.
_GIT_FLAGS: Final = frozenset(
    {"--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects"}
)
_GIT_SETTINGS: Final = re.compile(
    r"(?:user\.(?:name|email)|color\.\w+|advice\.\w+|core\.(?:quotepath|pager=cat|autocrlf|safecrlf)|commit\.gpgsign|init\.defaultbranch"
    r"|log\.\w+|diff\.(?:renames|noprefix|context))(?:=.*)?",
    re.IGNORECASE,
)
_PYTHON_FLAGS: Final = re.compile(r"-[uBEsSIOqvbd]+|-X\w+|-W\w+")


@dataclass(slots=True)
class Resolved:
    """One command that runs: its canonical words, and what was noticed on the way to it."""

    words: list[Word]
    origin: Simple
    settings: list[tuple[str, Word]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    #: Runs a file of the project rather than an installed program.
    script: bool = False
    inline: bool = False
    #: Other spellings rules may name: the words before they were made canonical.
    spelled: list[Word] = field(default_factory=list)
    #: Ids of the `Simple` commands whose output or words it gets.
    upstream: frozenset[int] = frozenset()

    @property
    def argv(self) -> tuple[str | None, ...]:
        """The words as plain text."""
        return tuple(word.text for word in self.words)

    @property
    def views(self) -> list[tuple[str | None, ...]]:
        """Every spelling a rule may be written for."""
        spelled = tuple(word.text for word in self.spelled)
        return [self.argv, spelled] if spelled and spelled != self.argv else [self.argv]


@dataclass(slots=True)
class Resolution:
    """All commands of a line, from all layers, with the redirects, settings and findings of the line."""

    commands: list[Resolved] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    settings: list[tuple[str, Word]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)


def resolve(text: str) -> Resolution:
    """Work out every command a line would run."""
    result = Resolution()
    _read(read_script(text), result, depth=0)
    return result


def views_of_line(text: str) -> list[tuple[str | None, ...]]:
    """Give every spelling of every command in a line; for checking a rule's examples."""
    return [view for command in resolve(text).commands for view in command.views]


def _read(script: Script, result: Resolution, depth: int) -> None:
    result.findings.extend(script.findings)
    result.redirects.extend(script.redirects)
    result.settings.extend(script.settings)
    result.functions.update(script.functions)
    result.findings.extend(_bombs(script))
    for simple in script.commands:
        first = len(result.commands)
        _strip(simple, list(simple.words), list(simple.settings), result, depth)
        for command in result.commands[first:]:
            if command.origin is simple:
                command.upstream = frozenset(id(script.commands[place]) for place in simple.sources)


def _bombs(script: Script) -> list[Finding]:
    found = []
    for name, (first, last) in script.functions.items():
        calls = [
            command
            for command in script.commands[first:last]
            if command.words and command.words[0].text == name
        ]
        if len(calls) > 1 or any(command.sources for command in calls):
            found.append(finding("shell.fork-bomb", name))
    return found


def _strip(
    simple: Simple, words: list[Word], settings: list[tuple[str, Word]], result: Resolution, depth: int
) -> None:
    """Take wrappers off until a command is left; every layer costs depth."""
    if depth > MAX_DEPTH or len(result.commands) > MAX_COMMANDS:
        result.findings.append(finding("shell.depth"))
        return
    if not words:
        result.settings.extend(settings)
        return
    command = _canonical(words, simple)
    command.settings = settings
    name = command.words[0].text
    if name is None or command.script or not is_wrapper(name, command.words):
        result.commands.append(command)
        return
    inner = unwrap(name, command.words)
    if inner.lost:
        command.findings.append(finding("shell.wrapper", name))
    command.inline = inner.inline
    command.script = inner.keep and name in INTERPRETERS and not inner.inline
    if inner.keep or inner.lost or inner.inline:
        result.commands.append(command)
    for more in inner.commands:
        _strip(simple, more, settings + inner.settings, result, depth + 1)
    for text in inner.texts:
        _nested(text, simple, settings, result, depth + 1)


def _nested(
    text: str, simple: Simple, settings: list[tuple[str, Word]], result: Resolution, depth: int
) -> None:
    if depth > MAX_DEPTH:
        result.findings.append(finding("shell.depth"))
        return
    result.settings.extend(settings)
    _read(read_script(text, places=simple.places or HERE), result, depth)


def _canonical(words: list[Word], simple: Simple) -> Resolved:
    """Give the program its plain name, and undo the spellings that hide a subcommand."""
    name, script = _program(words[0])
    if name is None:
        return Resolved([Word(None), *words[1:]], simple, spelled=words)
    plain = [Word(name), *words[1:]]
    if " " in name:
        plain = [*(Word(token) for token in name.split()), *words[1:]]
    resolved = Resolved(plain, simple, script=script, spelled=words)
    special = _SPECIAL.get(name)
    return special(resolved) if special and not script else resolved


def _program(word: Word) -> tuple[str | None, bool]:
    """Name the program; the second value tells that it is a file of the project."""
    text = word.text
    if not text or not _NAME.fullmatch(posixpath.basename(text)):
        return None, False
    folder, base = posixpath.split(text)
    lower = base.lower()
    found = _VERSIONED.fullmatch(lower)
    name = found[1] if found else _ALIASES.get(lower, lower if lower in _DANGEROUS else base)
    if not folder or folder in _SYSTEM_BINS or _TOOL_BINS.fullmatch(folder):
        return name, False
    if name in _DANGEROUS:
        return name, False
    return text, True


def _git(command: Resolved) -> Resolved:
    """Take git's own options off, so that `git -C x push` is `git push`."""
    words, place = command.words, 1
    while place < len(words) and (words[place].text or "").startswith("-"):
        text = words[place].text or ""
        if text == "-C" and place + 1 < len(words):
            command.findings.extend(_git_directory(words[place + 1], command))
            place += 2
        elif text == "-c" and place + 1 < len(words):
            if not _GIT_SETTINGS.fullmatch(words[place + 1].text or "\0"):
                command.findings.append(finding("shell.wrapper", "git -c"))
            place += 2
        elif text in _GIT_FLAGS:
            place += 1
        else:
            break
    command.words = [words[0], *words[place:]]
    return command


def _git_directory(word: Word, command: Resolved) -> list[Finding]:
    from proctor.gate.policy.paths import place_finding

    if word.text is None:
        return [] if word.harmless else [finding("shell.unknown-word")]
    found = place_finding(word.text, command.origin.places, write=False)
    return [found] if found else []


def _python(command: Resolved) -> Resolved:
    """Turn `python -m pip install` into `pip install`; mark code given in the line."""
    words, place = command.words, 1
    while place < len(words) and _PYTHON_FLAGS.fullmatch(words[place].text or "\0"):
        place += 2 if words[place].text in {"-X", "-W"} else 1
    text = words[place].text if place < len(words) else None
    if text in {"--version", "-V", "-VV", "--help", "-h"} and place + 1 == len(words):
        return command
    if text == "-m" and place + 1 < len(words) and words[place + 1].text is not None:
        module = words[place + 1].text or ""
        command.words = [Word("pip" if module == "pip3" else module), *words[place + 2 :]]
        return command
    if text is None or text.startswith("-") or text in {"/dev/stdin", "/dev/fd/0"}:
        command.inline = True
        return command
    command.words = [words[0], *words[place:]]
    command.script = True
    return command


_PLAIN_INTERPRETERS: Final = listed("node perl ruby php lua Rscript tclsh osascript guile irb ipython")
_NODE_SAFE: Final = re.compile(
    r"--(?:test[\w-]*(?:=[\w./*-]*)?|enable-source-maps|no-warnings|experimental-vm-modules|watch|check|trace-warnings)|-c"
)


def _interpreter(command: Resolved) -> Resolved:
    """Mark code given in the line or on standard input; a plain script file is a file of the project."""
    texts = [word.text for word in command.words[1:]]
    if texts in (["--version"], ["-v"], ["-V"], ["--help"]):
        return command
    while texts and command.words[0].text == "node" and _NODE_SAFE.fullmatch(texts[0] or "\0"):
        tests = (texts[0] or "").startswith("--test")
        texts = texts[1:]
        if tests and not texts:
            command.script = True
            return command
    first = texts[0] if texts else None
    if first is None or first.startswith(("-", "/dev/")):
        command.inline = True
    else:
        command.script = True
    return command


def _sourced(command: Resolved) -> Resolved:
    """`source FILE` runs a file of the project in this very shell."""
    command.script = len(command.words) > 1 and command.words[1].text is not None
    command.inline = not command.script
    return command


_SPECIAL: Final = {
    "git": _git,
    "python": _python,
    "source": _sourced,
    ".": _sourced,
    **dict.fromkeys(_PLAIN_INTERPRETERS, _interpreter),
}

# Names that are dangerous wherever the file lies and however they are spelled on a case-insensitive disk.
_DANGEROUS: Final = listed(
    "rm dd mkfs sudo doas su pkexec shred wipefs fdisk parted shutdown reboot halt poweroff mkswap "
    "blkdiscard curl wget"
)


def fetches(argv: Sequence[str | None]) -> bool:
    """Whether the command brings text from the network or out of a disguise."""
    name = argv[0] if argv else None
    if name in {
        "curl",
        "wget",
        "fetch",
        "aria2c",
        "nc",
        "ncat",
        "netcat",
        "socat",
        "ftp",
        "lynx",
        "http",
        "https",
        "telnet",
        "dig",
    }:
        return True
    rest = [word or "" for word in argv[1:]]
    if name in {"base64", "base32", "basenc", "uudecode"}:
        return name == "uudecode" or any(word.startswith(("-d", "-D", "--d")) for word in rest)
    return (name == "xxd" and any(word.startswith("-r") for word in rest)) or name in {
        "openssl",
        "gpg",
        "rev",
        "zcat",
        "gunzip",
        "xz",
        "gh",
    }
