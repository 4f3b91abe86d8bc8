"""Programs whose arguments are a small language of their own: sed, awk, find, printf, tar, set …

Invariant: each check gives findings only; an argument it cannot read fully is a finding that asks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from proctor.gate.policy.decision import Effect, Finding
from proctor.gate.policy.environment import steers_code
from proctor.gate.policy.lists import listed
from proctor.gate.policy.words import Word

__all__ = ["program_finding", "text_options"]

# Possessive loops (`*+`) keep these linear, whatever the script is.
_ONE_ADDRESS: Final = r"(?:[~+]?\d++|\$|/(?:[^/\\\n]|\\[^\n])*+/[IM]*+)"
_ADDRESS: Final = rf"{_ONE_ADDRESS}(?:[,~+]{_ONE_ADDRESS})?\s*+!?\s*+"
_SUBSTITUTE: Final = "|".join(
    rf"[sy]{mark}(?:[^{mark}\\\n]|\\[\s\S])*+{mark}(?:[^{mark}\\\n]|\\[\s\S])*+{mark}[gpiImM0-9]*+"
    for mark in map(re.escape, "/|#,@:!_+%~")
)
_SED_COMMAND: Final = (
    rf"(?:{_ADDRESS})?(?:{_SUBSTITUTE}|[pdqQPDgGhHxnN=lz]\d*+|[aic](?:\\\n|\\?[ \t]?)[^\n]*+)"
)
_SED: Final = re.compile(
    rf"\s*+(?:(?:{_ADDRESS})?[{{}}]\s*+|{_SED_COMMAND}[ \t]*+(?:[;\n]\s*+|(?=\}})|(?=\Z)))*+"
)
_SED_SCRIPT: Final = re.compile(r"-[nErsuz]*e|--expression")
_SED_OPTION: Final = re.compile(
    r"-[nErsuz]+|-[nErsuz]*i[\w.~]*"
    r"|--(?:quiet|silent|regexp-extended|in-place(?:=[\w.~]+)?|null-data|posix|sandbox|separate)"
)
_AWK_DANGER: Final = re.compile(r"system|getline|\||>|@|ENVIRON|close|fflush|-f\b")
_FIND_ACTS: Final = ("-delete",)
_FIND_WRITES: Final = ("-fprint", "-fprintf", "-fprint0", "-fls", "-files0-from")
_SET: Final = re.compile(r"[-+](?:[euxv]+|o)|pipefail|errexit|nounset|xtrace|noglob|--|-[euxv]*o")
_TAR_LETTERS: Final = re.compile(r"-?[cxtzjJvfrukhpmaOS]+")
_TAR_OPTIONS: Final = re.compile(
    r"--(?:exclude|strip-components)=[\w./*-]+|--(?:create|extract|list|gzip|verbose|zstd|xz|file)"
)
_MAKE_OPTION: Final = re.compile(r"-[A-Za-z]*[fCEI]|--(?:fi|ma|ev|dir|incl)")
_SYSTEM: Final = ("/usr/", "/bin/", "/sbin/", "/lib", "/opt/", "/etc/")
_DURATION: Final = re.compile(r"\d{1,4}(?:\.\d+)?s?")

Words = Sequence[Word]


def _ask(rule: str, reason: str, *, irreversible: bool = False) -> Finding:
    return Finding(Effect.ASK, rule, reason, irreversible)


def _sed(words: Words) -> Finding | None:
    scripts: list[str | None] = []
    place, given = 1, False
    while place < len(words):
        text = words[place].text
        if text is not None and _SED_SCRIPT.fullmatch(text):
            scripts.append(words[place + 1].text if place + 1 < len(words) else None)
            place, given = place + 1, True
        elif text is not None and text.startswith("-") and text != "-":
            if not _SED_OPTION.fullmatch(text):
                return _ask("sed.option", "the sed script is read from a file or not given plainly")
        elif not given:
            scripts.append(text)
            given = True
        place += 1
    if all(script is not None and len(script) < 2000 and _SED.fullmatch(script) for script in scripts):
        return None
    return _ask("sed.script", "the sed script may write files or run commands")


def _awk(words: Words) -> Finding | None:
    texts = [word.text for word in words[1:]]
    if any(text is None for text in texts):
        return _ask("awk.unknown", "the awk program is known only at run time")
    for text in texts:
        if text is not None and text.startswith("-") and not re.match(r"-[Fv]|--$|--csv|-b|--version", text):
            return _ask("awk.option", "this option of awk may load other code")
    if any(text is not None and _AWK_DANGER.search(text) for text in texts):
        return _ask("awk.program", "the awk program may write files or run commands")
    return None


def _find(words: Words) -> Finding | None:
    texts = [word.text for word in words[1:]]
    if any(text in _FIND_ACTS for text in texts):
        return _ask("find.delete", "find deletes what it finds", irreversible=True)
    if any(text is not None and text.startswith(_FIND_WRITES) for text in texts):
        return _ask("find.write", "find writes a file of its own")
    return None


def _printf(words: Words) -> Finding | None:
    first = words[1] if len(words) > 1 else Word("")
    if first.text is None or (first.text.startswith("-") and first.text != "--"):
        return _ask("printf.variable", "printf -v evaluates the name it is given")
    return None


def _test(words: Words) -> Finding | None:
    if any(word.text in {"-v", "-R"} or (word.text is None and not word.quoted) for word in words[1:]):
        return _ask("test.variable", "test -v evaluates the name it is given")
    return None


def _set(words: Words) -> Finding | None:
    if all(word.text is not None and _SET.fullmatch(word.text) for word in words[1:]) and len(words) > 1:
        return None
    return _ask("set.option", "this setting changes how the shell reads commands")


def _read(words: Words) -> Finding | None:
    if all(re.fullmatch(r"-[rsa]+|[A-Za-z_]\w*", word.text or "") for word in words[1:]):
        return None
    return _ask("read.name", "read evaluates the name it is given")


def _tar(words: Words) -> Finding | None:
    for place, word in enumerate(words[1:]):
        text = word.text
        if text is None or any(mark in text for mark in "*?["):
            return _ask("tar.unknown", "a name tar gets may be read as an option")
        option = text.startswith("-") or place == 0
        if option and not (_TAR_LETTERS.fullmatch(text) or _TAR_OPTIONS.fullmatch(text)):
            return _ask("tar.option", "this option of tar may run a program or leave the directory")
    return None


def _sleep(words: Words) -> Finding | None:
    if len(words) == 2 and _DURATION.fullmatch(words[1].text or ""):
        return None
    return _ask("sleep.long", "it waits for an unknown or long time")


def _link(words: Words) -> Finding | None:
    if any(
        (word.text or "/").startswith(("/", "~")) or ".." in (word.text or "").split("/")
        for word in words[1:]
    ):
        return _ask("link.outside", "a link may lead out of the workspace")
    return None


def _make(words: Words) -> Finding | None:
    for word in words[1:]:
        text = word.text
        if text is None or _MAKE_OPTION.match(text) or re.search(r"[`$;|&<>]", text):
            return _ask("make.option", "make is told to read other rules or gets shell text")
        name, given, value = text.partition("=")
        plain = not given or text.startswith("-")
        if not plain and (name.startswith(("SHELL", ".", "MAKE")) or steers_code(name, Word(value))):
            return _ask("make.variable", "make is told to use another program")
    return None


def _compiler(words: Words) -> Finding | None:
    """What it makes is written; a response file may hold any option."""
    texts = [word.text or "" for word in words[1:]]
    for text, after in zip(texts, [*texts[1:], ""], strict=False):  # alone it has no words
        if text.startswith("@"):
            return _ask("compiler.options", "the options are read from a file")
        # Reading the system's directories is allowed, so that only an option tells that one is written.
        named = text in {"-o", "--out-dir", "-d"} and after.startswith(_SYSTEM)
        if named or (text.startswith("-o") and text[2:3] in {"/", "~"}):
            return _ask("compiler.output", "a path outside the workspace would be written")
    return None


def _git(words: Words) -> Finding | None:
    """A checkout of files looks like a checkout of a branch, and discards work."""
    texts = [word.text or "" for word in words[1:]]
    if texts[:1] != ["checkout"] or {"-b", "-B", "--orphan"} & set(texts):
        return None
    names = [text for text in texts[1:] if not text.startswith("-")]
    if len(names) > 1 or any(re.search(r"\.\w{1,5}$", name) for name in names):
        return _ask("git.checkout-files", "discards uncommitted work", irreversible=True)
    return None


def _two_files(words: Words) -> Finding | None:
    if sum(not (word.text or "").startswith("-") or word.text == "-" for word in words[1:]) > 1:
        return _ask("output.file", "the second file is written")
    return None


_CHECKS: Final[dict[str, Callable[[Words], Finding | None]]] = {
    "sed": _sed,
    "awk": _awk,
    "find": _find,
    "printf": _printf,
    "test": _test,
    "[": _test,
    "set": _set,
    "read": _read,
    "tar": _tar,
    "sleep": _sleep,
    "ln": _link,
    "make": _make,
    **dict.fromkeys(listed("gcc g++ clang clang++ cc c++ rustc javac ld as"), _compiler),
    "git": _git,
    "uniq": _two_files,
    "xxd": _two_files,
}

_TEXT_OPTIONS: Final[dict[str, frozenset[str]]] = {
    "git": listed(
        "-m --message --grep -S -G --author --format --pretty --since --until --after --before -L -e --date "
        "--trailer"
    ),
    "grep": listed("-e --regexp --include --exclude --exclude-dir -m -A -B -C"),
    "rg": listed("-e --regexp -g --glob -t --type -m -A -B -C -r --replace --max-depth -j"),
    "pytest": listed("-k -m -n -W -o"),
    "find": listed(
        "-name -iname -path -ipath -regex -iregex -wholename -printf -newermt -type -perm -size -mtime"
    ),
    "tree": listed("-I -P -L"),
    "cargo": listed("--features --test --bin --example -p"),
    "go": listed("-run -bench -tags -ldflags -count -timeout"),
    "sort": listed("-t -k"),
    "cut": listed("-d -f -c -b"),
    "paste": listed("-d"),
    "column": listed("-s -t"),
    "head": listed("-n -c"),
    "tail": listed("-n -c"),
    "jq": listed("--arg --argjson --indent"),
    "date": listed("-d --date"),
    "ruff": listed("--select --ignore"),
    "eslint": listed("--ext --rule"),
}
_NONE: Final[frozenset[str]] = frozenset()


def program_finding(name: str, words: Words) -> Finding | None:
    """Look at the arguments of a program that has a language of its own."""
    check = _CHECKS.get(name)
    return check(words) if check else None


def text_options(name: str) -> frozenset[str]:
    """Name the options whose value is text and not a file."""
    return _TEXT_OPTIONS.get(name, _NONE)
