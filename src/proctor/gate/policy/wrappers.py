"""Commands that run other commands: env, timeout, xargs, find -exec, sh -c, eval, trap, uv run …

Invariant: stripping gives every command that would run, or says that it could not be worked out; an option the table
does not know is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from proctor.gate.policy.words import UNKNOWN, Word

__all__ = ["INTERPRETERS", "SHELLS", "Unwrapped", "is_wrapper", "unwrap"]

SHELLS: Final = frozenset(
    {"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash", "tcsh", "csh", "pwsh", "powershell"}
)
INTERPRETERS: Final = SHELLS | frozenset(
    {
        "python",
        "node",
        "perl",
        "ruby",
        "php",
        "lua",
        "osascript",
        "deno",
        "bun",
        "tclsh",
        "Rscript",
        "irb",
        "ipython",
        "guile",
    }
)
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=([\s\S]*)")
_FIND_RUNS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


@dataclass(frozen=True, slots=True)
class _Spec:
    """How one wrapper's own options are read."""

    flags: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()
    pattern: str = ""
    positionals: int = 0
    #: Options that already belong to what is run.
    stops: frozenset[str] = frozenset()


def _spec(flags: str = "", values: str = "", pattern: str = "", positionals: int = 0) -> _Spec:
    return _Spec(frozenset(flags.split()), frozenset(values.split()), pattern, positionals)


_SPECS: Final[dict[str, _Spec]] = {
    "nice": _spec(values="-n --adjustment", pattern=r"-\d+|-n-?\d+|--adjustment=-?\d+"),
    "timeout": _spec(
        "--preserve-status --foreground -v --verbose",
        "-s --signal -k --kill-after",
        r"--(?:signal|kill-after)=\w+|-[sk]\w+",
        1,
    ),
    "gtimeout": _spec("--preserve-status --foreground -v", "-s -k", "", 1),
    "nohup": _spec(),
    "time": _spec("-p -v --verbose --portability", "-f --format"),
    "command": _spec("-p"),
    "builtin": _spec(),
    "exec": _spec("-c -l -cl", "-a"),
    "coproc": _spec(),
    "setsid": _spec("-w --wait -f --fork -c"),
    "stdbuf": _spec(values="-i -o -e", pattern=r"-[ioe][L0-9]\w*|--(?:input|output|error)=\w+"),
    "ionice": _spec("-t", "-c -n", r"-[cn]\d"),
    "chrt": _spec("-i -o -b -f -r", "", "", 1),
    "taskset": _spec("-c", "", "", 1),
    "unbuffer": _spec(),
    "chronic": _spec(),
    "caffeinate": _spec("-i -d -m -s -u"),
    "noglob": _spec(),
    "catchsegv": _spec(),
    "setarch": _spec("-R", "", "", 1),
    "nyc": _spec(),
    "c8": _spec(),
    "ccache": _spec(),
    "sccache": _spec(),
    "xargs": _spec(
        "-0 -r -t -x --null --no-run-if-empty --verbose --exit -0r -r0",
        "-n -P -L -d -s --max-args --max-procs --max-lines --delimiter -I",
        r"-[nPLdsI].+|--(?:max-args|max-procs|max-lines|delimiter|replace)=.*|-[ie]",
    ),
}
# First word, second word -> how the options after them are read.
_PAIRS: Final[dict[tuple[str, str], _Spec]] = {
    ("uv", "run"): _spec(
        "--frozen --locked --no-sync --all-extras --dev --no-dev -q --quiet --offline --isolated --",
        "--group --extra",
    ),
    ("poetry", "run"): _spec(),
    ("pipenv", "run"): _spec(),
    ("pdm", "run"): _spec(),
    ("rye", "run"): _spec(),
    ("hatch", "run"): _spec(),
    ("bundle", "exec"): _spec(),
    ("pnpm", "exec"): _spec("--"),
    ("yarn", "exec"): _spec("--"),
    ("npm", "exec"): _spec("--no --"),
    ("mise", "exec"): _spec("--"),
}
_ENV: Final = _spec("-i --ignore-environment - -0 --null -v --debug", "-u --unset", r"--unset=\w+|-u\w+")
_COVERAGE: Final = _Spec(
    frozenset({"--branch", "-p", "--parallel-mode", "-a", "--append"}),
    pattern=r"--(?:source|omit|include)=[\w.,/*]+",
    stops=frozenset({"-m"}),
)
_NPX: Final = _spec("--no-install --no -y --yes -q --quiet --")
_SHELL: Final = _spec("--norc --noprofile --posix --login", "-o +o", r"-[celuvxfn]+")
_EXTRA: Final = frozenset({"env", "npx", "bunx", "eval", "trap", "find", "fd", "busybox", "toybox"})


@dataclass(slots=True)
class Unwrapped:
    """What a wrapper would run: commands, shell text, and settings on the way; `lost` when it is not known."""

    commands: list[list[Word]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    settings: list[tuple[str, Word]] = field(default_factory=list)
    #: The wrapper's own words are to be judged too (find has paths and actions of its own).
    keep: bool = False
    lost: bool = False
    #: Code that no rule can read: an interpreter's argument or standard input.
    inline: bool = False


def is_wrapper(name: str, words: Sequence[Word]) -> bool:
    """Whether the command runs another one that must be judged in its place."""
    if name in _SPECS:
        return not (name == "command" and len(words) > 1 and words[1].text in {"-v", "-V"})
    if name in _EXTRA or name in SHELLS:
        return True
    pair = (name, (words[1].text or "") if len(words) > 1 else "")
    return pair in _PAIRS or pair == ("coverage", "run")


def unwrap(name: str, words: Sequence[Word]) -> Unwrapped:
    """Strip one layer; `words` begins with the wrapper itself."""
    if name in SHELLS:
        return _shell(words)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(words)
    if (name, words[1].text if len(words) > 1 else "") == ("coverage", "run"):
        rest = _after_options(words[2:], _COVERAGE)
        return Unwrapped(lost=True) if rest is None else Unwrapped(commands=[[Word("python"), *rest]])
    pair = _PAIRS.get((name, words[1].text or "")) if len(words) > 1 else None
    if pair is not None:
        return _inner(words[2:], pair)
    result = _inner(words[1:], _SPECS[name])
    if name == "xargs":
        result.commands = [
            [*(_filled(word) for word in command), Word(None)] for command in result.commands
        ] or [[Word("echo")]]
        result.lost = result.lost and bool(words[1:]) and result.commands == [[Word("echo")]]
    return result


def _filled(word: Word) -> Word:
    return UNKNOWN if word.text and "{}" in word.text else word


def _inner(words: Sequence[Word], spec: _Spec, *, may_be_empty: bool = False) -> Unwrapped:
    rest = _after_options(words, spec)
    if rest is None:
        return Unwrapped(lost=True)
    rest = rest[spec.positionals :]
    return Unwrapped(commands=[list(rest)]) if rest else Unwrapped(lost=not may_be_empty)


def _after_options(words: Sequence[Word], spec: _Spec) -> Sequence[Word] | None:
    place = 0
    while place < len(words):
        text = words[place].text
        if text is None:
            return words[place:]
        if text == "--":
            return words[place + 1 :]
        if not text.startswith(("-", "+")) or text == "-" or text in spec.stops:
            return words[place:]
        if text in spec.values:
            place += 2
        elif text in spec.flags or (spec.pattern and re.fullmatch(spec.pattern, text)):
            place += 1
        else:
            return None
    return []


def _env(words: Sequence[Word]) -> Unwrapped:
    rest = _after_options(words[1:], _ENV)
    if rest is None:
        return Unwrapped(lost=True)
    settings: list[tuple[str, Word]] = []
    for place, word in enumerate(rest):
        found = _ASSIGNMENT.fullmatch(word.text) if word.text is not None else None
        if not found:
            return Unwrapped(commands=[list(rest[place:])], settings=settings)
        settings.append((found[1], Word(found[2])))
    return Unwrapped(commands=[[Word("printenv")]], settings=settings)


def _npx(words: Sequence[Word]) -> Unwrapped:
    result = _inner(words[1:], _NPX)
    # What npx does not find it fetches, so only the names of known tools (and no version or URL) may pass.
    if result.commands and not re.fullmatch(r"[a-z][a-z0-9-]*", result.commands[0][0].text or ""):
        result.lost = True
    return result


def _shell(words: Sequence[Word]) -> Unwrapped:
    rest = _after_options(words[1:], _SHELL)
    options = [word.text or "" for word in words[1 : len(words) - len(rest or ())]]
    if words[1:] and words[1].text in {"--version", "--help"} and len(words) == 2:
        return Unwrapped(keep=True)
    if rest is None:
        return Unwrapped(lost=True)
    if any(re.fullmatch(r"-[a-z]*c[a-z]*", option) for option in options):
        if not rest or rest[0].text is None:
            return Unwrapped(inline=True)
        return Unwrapped(texts=[rest[0].text])
    return Unwrapped(
        keep=True, inline=not rest or rest[0].text is None or rest[0].text in {"-", "/dev/stdin", "/dev/fd/0"}
    )


def _eval(words: Sequence[Word]) -> Unwrapped:
    texts = [word.text for word in words[1:] if word.text != "--"]
    if any(text is None for text in texts):
        return Unwrapped(inline=True)
    return (
        Unwrapped(texts=[" ".join(text or "" for text in texts)])
        if texts
        else Unwrapped(commands=[[Word("true")]])
    )


def _trap(words: Sequence[Word]) -> Unwrapped:
    rest = [word for word in words[1:] if word.text != "--"]
    if len(rest) < 2 or (rest[0].text or "").startswith("-"):
        return Unwrapped(lost=not rest or rest[0].text is None, commands=[[Word("true")]])
    return (
        Unwrapped(inline=True)
        if rest[0].text is None
        else Unwrapped(texts=[rest[0].text] if rest[0].text else [], commands=[[Word("true")]])
    )


def _find(words: Sequence[Word]) -> Unwrapped:
    result = Unwrapped(keep=True)
    place = 1
    while place < len(words):
        if words[place].text in _FIND_RUNS:
            start = place + 1
            while place < len(words) and not _ends_exec(words, place):
                place += 1
            inner = [
                Word(None, harmless=True) if word.text == "{}" else _filled(word)
                for word in words[start:place]
            ]
            result.commands.append(inner or [UNKNOWN])
        place += 1
    return result


def _ends_exec(words: Sequence[Word], place: int) -> bool:
    return words[place].text == ";" or (words[place].text == "+" and words[place - 1].text == "{}")


def _fd(words: Sequence[Word]) -> Unwrapped:
    runs = {"-x", "--exec", "-X", "--exec-batch"}
    return Unwrapped(keep=True, lost=any((word.text or "").split("=")[0] in runs for word in words[1:]))


def _box(words: Sequence[Word]) -> Unwrapped:
    return Unwrapped(commands=[list(words[1:])]) if len(words) > 1 else Unwrapped(lost=True)


_SPECIAL: Final = {
    "env": _env,
    "npx": _npx,
    "bunx": _npx,
    "eval": _eval,
    "trap": _trap,
    "find": _find,
    "fd": _fd,
    "busybox": _box,
    "toybox": _box,
}
