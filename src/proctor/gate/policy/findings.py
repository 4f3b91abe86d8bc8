"""The structural findings: what is wrong with the form of a command line, whatever program it names.

Each has a stable id, so that a person can look it up and a test can name it.
"""

from __future__ import annotations

from typing import Final

from proctor.gate.policy.decision import Effect, Finding

__all__ = ["STRUCTURE", "finding"]

_ASK, _DENY = Effect.ASK, Effect.DENY

STRUCTURE: Final[dict[str, Finding]] = {
    entry.rule: entry
    for entry in (
        Finding(
            _DENY,
            "text.control",
            "the text holds control or invisible characters, so what you see is not what runs",
        ),
        Finding(_DENY, "text.encoding", "the text is not valid UTF-8"),
        Finding(_ASK, "text.blank", "the text holds blanks that only look like spaces"),
        Finding(_ASK, "text.long", "the command is longer than 32 KiB and was not read"),
        Finding(_ASK, "text.hard", "the text is long and made so that reading it takes too long"),
        Finding(_ASK, "text.empty", "there is no command"),
        Finding(_ASK, "shell.parse", "the shell syntax could not be read without doubt"),
        Finding(_ASK, "shell.depth", "commands are nested too deeply to be followed"),
        Finding(_ASK, "shell.many", "there are too many commands in one line to be followed"),
        Finding(_ASK, "shell.construct", "the line uses a shell construct the policy does not know"),
        Finding(_ASK, "shell.backslash", "a word is written with a backslash and may mean something else"),
        Finding(_ASK, "shell.separator", "a word holds a raw separator and may be more than one command"),
        Finding(_ASK, "shell.words", "it is not clear where a word ends"),
        Finding(_ASK, "shell.quoting", "a quoted text uses escapes that are decoded only at run time"),
        Finding(_ASK, "shell.redirect-words", "words follow a redirect and belong to the command before it"),
        Finding(_ASK, "shell.heredoc", "the end of the here-document is not clear or its text is expanded"),
        Finding(
            _ASK,
            "shell.subscript",
            "a subscript or arithmetic text is evaluated by the shell and may run commands",
        ),
        Finding(_ASK, "shell.expansion", "this form of parameter expansion may run commands"),
        Finding(_ASK, "shell.variable", "a variable changes its value between its uses"),
        Finding(_ASK, "shell.unknown-command", "the name of the command is known only at run time"),
        Finding(_ASK, "shell.unknown-word", "an argument is known only at run time"),
        Finding(_ASK, "shell.unknown-target", "the target of a redirect is known only at run time"),
        Finding(_ASK, "shell.wrapper", "what the wrapper would run could not be worked out"),
        Finding(
            _ASK, "shell.inline-code", "the interpreter runs code given in the line or on its standard input"
        ),
        Finding(_DENY, "shell.fetch-and-run", "text from the network or a decoder is run as a program"),
        Finding(
            _ASK,
            "shell.write-then-run",
            "the line writes a file and also runs project code that may be that file",
        ),
        Finding(_DENY, "shell.fork-bomb", "a function starts itself again and again"),
        Finding(_DENY, "shell.network-redirect", "a redirect opens a network connection"),
        Finding(_DENY, "shell.device", "a redirect writes to a device"),
        Finding(_ASK, "shell.function", "a function hides a known command or has an odd name"),
        Finding(_ASK, "shell.environment", "a variable is set that changes which code runs"),
    )
}


def finding(rule: str, detail: str = "") -> Finding:
    """Look a finding up by its id and add what it was found on."""
    entry = STRUCTURE[rule]
    return entry._replace(reason=f"{entry.reason}: {detail[:120]}") if detail else entry
