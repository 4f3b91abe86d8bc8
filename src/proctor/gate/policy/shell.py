"""Reads a command line with tree-sitter-bash into its simple commands, redirects and structural findings.

Invariants: the length is capped before anything is parsed; every node type is known or noted; a parse error, an unclear
word boundary or an unknown construct is a finding that asks, and the walk goes on so that what must be denied is found.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tree_sitter import Node

from proctor.gate.policy.characters import has_odd_blanks, refused_text
from proctor.gate.policy.decision import Finding
from proctor.gate.policy.findings import finding
from proctor.gate.policy.heredoc import heredoc_is_clear
from proctor.gate.policy.lists import listed
from proctor.gate.policy.parsing import parse
from proctor.gate.policy.words import UNKNOWN, Variables, Word, WordReader

__all__ = ["HERE", "MAX_COMMANDS", "NOWHERE", "Redirect", "Script", "Simple", "read_script"]

MAX_COMMANDS: Final = 400
MAX_NESTING: Final = 60
MAX_FINDINGS: Final = 1000
HERE: Final = frozenset({"."})
#: A directory that cannot be known, as after `cd "$x"`.
NOWHERE: Final = "\0"

# Bash takes backslash and newline out before it looks for words, so that `ls\\⏎#` is one word and no comment begins.
_JOINED: Final = re.compile(rb"(?<![ \t])\\\n(?![ \t])")
_BLANKS: Final = re.compile(rb"[ \t]+")
_CONTINUED: Final = re.compile(rb"(?:[ \t]+\\\n)+[ \t]*|[ \t]*(?:\\\n[ \t]+)+")
_EVALUATED: Final = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_READS: Final = frozenset({"read", "getopts"})
_ASSIGNS: Final = frozenset(
    {"eval", "source", ".", "command", "builtin", "printf", "mapfile", "readarray", "wait", "let"}
)
_NUMBER: Final = re.compile(r"-?[0-9]+")


class Redirect(NamedTuple):
    """One redirect: the operator, the target, and the directories it may be opened in."""

    operator: str
    target: Word
    places: frozenset[str]


@dataclass(slots=True)
class Simple:
    """One simple command as it stands in the line."""

    words: list[Word]
    settings: list[tuple[str, Word]]
    #: Directories, relative to the start, the command may run in (after `cd`).
    places: frozenset[str]
    #: Indices of the commands whose output it reads or whose text it gets as words.
    sources: tuple[int, ...] = ()


@dataclass(slots=True)
class Script:
    """All that a command line would do, as far as it can be known."""

    commands: list[Simple] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    settings: list[tuple[str, Word]] = field(default_factory=list)
    functions: dict[str, tuple[int, int]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def read_script(text: str, *, places: frozenset[str] = HERE, sources: tuple[int, ...] = ()) -> Script:
    """Read one command line; never raises, whatever the text is."""
    refused = refused_text(text)
    if refused:
        return Script(findings=[finding(refused)])
    script = Script()
    if has_odd_blanks(text):
        script.findings.append(finding("text.blank"))
    source = text.encode()
    root = parse(source)
    if root is None:
        return Script(findings=[*script.findings, finding("text.hard")])
    if _JOINED.search(source):
        script.findings.append(finding("shell.words", "a line is continued in the middle of a word"))
    if root.has_error:
        script.findings.append(finding("shell.parse"))
    try:
        _Walker(source, script, places, sources).run(root)
    except RecursionError:  # the limits on nesting are far below this; a reader that went on would be lost
        script.findings.append(finding("shell.depth"))
    if not script.commands and not script.redirects and not script.settings and not script.findings:
        script.findings.append(finding("text.empty"))
    return script


class _Walker:
    """One walk over one tree, in the order of the text."""

    def __init__(
        self, source: bytes, script: Script, places: frozenset[str], sources: tuple[int, ...]
    ) -> None:
        self._source = source
        self._script = script
        self._places = places
        self._sources = sources
        self._depth = 0
        self._variables = Variables()
        self._words = WordReader(source, self._variables, self._note, self._inner)

    def run(self, root: Node) -> None:
        """Walk everything, then say which variables could not be relied on."""
        self._visit(root)
        for name in self._variables.unsteady():
            self._note("shell.variable", name)

    def _note(self, rule: str, detail: str = "") -> None:
        self._script.findings.append(finding(rule, detail))

    def _inner(self, node: Node) -> None:
        """Walk commands inside a word; what they do to the directory stays there."""
        places, sources = self._places, self._sources
        self._sources = ()
        self._each(node)
        self._places, self._sources = places, sources

    def _visit(self, node: Node) -> None:
        self._depth += 1
        if self._depth > MAX_NESTING:
            self._note("shell.depth")
        elif len(self._script.commands) > MAX_COMMANDS or len(self._script.findings) > MAX_FINDINGS:
            self._note("shell.many")
        else:
            handler = _HANDLERS.get(node.type)
            if handler is not None:
                handler(self, node)
            else:
                self._unknown(node)
        self._depth -= 1

    def _unknown(self, node: Node) -> None:
        if node.is_named:
            self._note("shell.construct", node.type)
        self._each(node)

    def _each(self, node: Node) -> None:
        for child in node.children:
            if child.is_named or child.child_count:
                self._visit(child)

    def _skip(self, node: Node) -> None:
        """Nothing to do for a node whose meaning was taken elsewhere."""

    def _pattern(self, node: Node) -> None:
        if not _CALM.fullmatch(self._words.raw(node)):
            self._note("shell.construct", node.type)
            self._each(node)

    def _comment(self, node: Node) -> None:
        start = node.start_byte
        if start and self._source[start - 1 : start] not in b" \t\n;&|()":
            self._note("shell.words", "#")

    def _word(self, node: Node) -> None:
        self._words.read(node)

    # ── commands ──────────────────────────────────────────────────────────────────────────────────────────────

    def _command(self, node: Node) -> None:
        words: list[Word] = []
        settings: list[tuple[str, Word]] = []
        first = len(self._script.commands)
        place = node.start_byte
        for child in node.children:
            kind = child.type
            if child.start_byte != place:
                self._gap(place, child.start_byte)
            elif child.start_byte != node.start_byte and not kind.endswith("_redirect"):
                self._note("shell.words", self._words.raw(node))
            place = child.end_byte
            if kind == "variable_assignment":
                settings.extend(self._setting(child, lasting=False))
            elif kind == "command_name":
                words.append(self._words.read(child.children[0]) if child.child_count == 1 else UNKNOWN)
            elif kind.endswith("_redirect"):
                words.extend(self._redirect(child))
            else:
                words.append(self._words.read(child))
        inner = tuple(range(first, len(self._script.commands)))
        self._forget(words)
        self._script.commands.append(Simple(words, settings, self._places, self._sources + inner))

    def _forget(self, words: list[Word]) -> None:
        """Builtins give variables values that are not seen here."""
        name = words[0].text if words else ""
        if name in _READS:
            for word in words[1:]:
                if word.text is None or not word.text.startswith("-"):
                    self._variables.assign(word.text or "", None)
                    self._script.settings.append((word.text or "?", UNKNOWN))
        elif name is None or name in _ASSIGNS:
            self._variables.spoil()

    def _gap(self, start: int, end: int) -> None:
        gap = self._source[start:end]
        if not _BLANKS.fullmatch(gap) and not _CONTINUED.fullmatch(gap):
            self._note("shell.words", gap.decode(errors="replace"))

    def _setting(self, node: Node, *, lasting: bool = True) -> list[tuple[str, Word]]:
        """Read NAME=VALUE; a subscript in the name is evaluated by the shell."""
        target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if target is None or target.type != "variable_name":
            self._note("shell.subscript", self._words.raw(node))
            self._each(node)
            return []
        name = self._words.raw(target)
        if value is not None and value.type == "array":
            word = UNKNOWN
            self._each(value)
        else:
            word = self._words.read(value) if value is not None else Word("")
        if lasting:
            self._variables.assign(
                name, None if self._words.raw(node)[len(name) :].startswith("+") else word.text
            )
        return [(name, word)]

    def _assignment(self, node: Node) -> None:
        self._script.settings.extend(self._setting(node))

    def _declaration(self, node: Node) -> None:
        """Read export, declare, local, readonly, typeset; only export and local NAME=VALUE are plain."""
        if node.children[0].type not in {"export", "local", "readonly"}:
            self._note("shell.subscript", self._words.raw(node))
        for child in node.children[1:]:
            if child.type == "variable_assignment":
                self._script.settings.extend(self._setting(child))
            elif child.type == "variable_name":
                self._script.settings.append((self._words.raw(child), UNKNOWN))
            else:
                self._note("shell.subscript", self._words.raw(node))
                self._words.read(child)

    def _unset(self, node: Node) -> None:
        for child in node.children[1:]:
            if child.type == "variable_name":
                self._script.settings.append((self._words.raw(child), UNKNOWN))
            else:
                self._note("shell.subscript", self._words.raw(node))

    # ── redirects and here-documents ──────────────────────────────────────────────────────────────────────────

    def _redirect(self, node: Node) -> list[Word]:
        """Note a redirect; give back the words after it, which belong to the command."""
        if node.type == "heredoc_redirect":
            return self._heredoc(node)
        if node.type == "herestring_redirect":
            for child in node.children[1:]:
                self._words.read(child)
            return []
        operator, targets = "", []
        for child in node.children:
            if child.type == "file_descriptor":
                continue
            if child.is_named:
                targets.append(self._words.read(child))
            else:
                operator = child.type
        if len(targets) > 1:
            self._note("shell.redirect-words", self._words.raw(node))
        if targets:
            self._script.redirects.append(Redirect(operator, targets[0], self._places))
        elif not operator.endswith("-"):
            self._note("shell.words", self._words.raw(node))
        return targets[1:]

    def _redirected(self, node: Node) -> None:
        body = node.child_by_field_name("body")
        if body is not None:
            self._visit(body)
        last = len(self._script.commands) - 1
        for child in node.children:
            if not child.type.endswith("_redirect"):
                continue
            more = self._redirect(child)
            if more and body is not None and body.type == "command":
                self._script.commands[last].words.extend(more)

    def _heredoc(self, node: Node) -> list[Word]:
        """Check the end of a here-document by hand; commands after it on the line are walked like others."""
        start = body = end = None
        first = len(self._script.commands)
        for child in node.children:
            if child.type == "heredoc_start":
                start = child
            elif child.type == "heredoc_body":
                body = child
            elif child.type == "heredoc_end":
                end = child
            elif child.type == "file_redirect":
                self._redirect(child)
            elif child.type == "pipeline":
                self._sources = (*self._sources, *range(max(0, first - 1), first))
                self._visit(child)
            elif child.is_named and child.type != "file_descriptor":
                self._visit(child) if child.type in _HANDLERS else self._note("shell.heredoc", child.type)
        clear = (
            start
            and end
            and heredoc_is_clear(self._source, (start.start_byte, start.end_byte), end.start_byte)
        )
        if not clear:
            self._note("shell.heredoc")
            if body is not None:
                self._each(body)
        return []

    # ── structure ─────────────────────────────────────────────────────────────────────────────────────────────

    def _list(self, node: Node) -> None:
        """Follow `cd X && …`: on the right the directory is X for sure; afterwards it may be either."""
        before = self._places
        for child in node.children:
            if not child.is_named:
                if child.type != "&&":
                    self._places |= before
                continue
            self._visit(child)
            if child.type == "command":
                self._enter(before, sure=True)
        if node.parent is None or node.parent.type != "list":
            self._places |= before

    def _enter(self, before: frozenset[str], *, sure: bool) -> None:
        words = self._script.commands[-1].words if self._script.commands else []
        if not words or words[0].text not in {"cd", "pushd", "popd"}:
            return
        targets = [word for word in words[1:] if word.text not in {"--", "-P", "-L"}]
        where = targets[0].text if len(targets) == 1 and words[0].text != "popd" else None
        if where is None or where == "-" or where.startswith("-"):
            self._places |= {NOWHERE}
            return
        after = frozenset(
            where if where.startswith(("/", "~")) else f"{place}/{where}" for place in self._places
        )
        self._places = after if sure else self._places | after | before
        if len(self._places) > 8:
            self._places = frozenset({NOWHERE})

    def _plain_command(self, node: Node) -> None:
        self._command(node)
        if node.parent is None or node.parent.type != "list":
            self._enter(self._places, sure=False)

    def _pipeline(self, node: Node) -> None:
        places, sources = self._places, self._sources
        first = len(self._script.commands)
        for child in node.children:
            if child.is_named:
                self._visit(child)
                self._places = places
            self._sources = sources + tuple(range(first, len(self._script.commands)))
        self._sources = sources

    def _scoped(self, node: Node) -> None:
        places = self._places
        self._each(node)
        self._places = places

    def _compound(self, node: Node) -> None:
        if node.children and node.children[0].type == "((":
            self._note("shell.subscript", self._words.raw(node))
        self._each(node)

    def _for(self, node: Node) -> None:
        variable = node.child_by_field_name("variable")
        name = self._words.raw(variable) if variable is not None else ""
        self._script.settings.append((name, UNKNOWN))
        values = [self._words.read(child) for child in node.children_by_field_name("value")]
        for value in values or [UNKNOWN]:
            self._variables.assign(name, value.text)
        if node.children[0].type != "for":
            self._note("shell.construct", "select")
        body = node.child_by_field_name("body")
        if body is not None:
            self._visit(body)

    def _counted(self, node: Node) -> None:
        self._note("shell.subscript", "for ((")
        self._each(node)

    def _function(self, node: Node) -> None:
        target = node.child_by_field_name("name")
        name = self._words.raw(target) if target is not None else ""
        if not re.fullmatch(r"[A-Za-z_][\w-]*", name):
            self._note("shell.function", name)
        first = len(self._script.commands)
        for child in node.children:
            if child.type.endswith("_redirect"):
                self._redirect(child)
            elif child is not target and child.is_named and child.type != "word":
                self._visit(child)
        self._script.functions[name] = (first, len(self._script.commands))

    # ── tests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _test(self, node: Node) -> None:
        self._expression(node, double=node.children[0].type == "[[")
        first = len(self._script.commands)
        self._script.commands.append(
            Simple([Word("[")], [], self._places, self._sources + tuple(range(first, first)))
        )

    def _expression(self, node: Node, *, double: bool) -> None:
        self._depth += 1
        if self._depth > MAX_NESTING:
            self._note("shell.depth")
        else:
            self._operands(node, double=double)
        self._depth -= 1

    def _operands(self, node: Node, *, double: bool) -> None:
        for child in node.children:
            kind = child.type
            if kind in {
                "binary_expression",
                "unary_expression",
                "parenthesized_expression",
                "negation_expression",
            }:
                self._expression(child, double=double)
            elif kind == "test_operator":
                self._operator(node, self._words.raw(child), double=double)
            elif child.is_named and kind not in {"regex", "extglob_pattern"}:
                word = self._words.read(child)
                if not double and not (word.quoted or word.harmless or word.text is not None):
                    self._bare_operand(child)
            elif child.is_named:
                self._pattern(child)

    def _bare_operand(self, node: Node) -> None:
        """An unquoted value in `[ ]` may become several words, `-v` among them, which evaluates what follows."""
        if self._words.raw(node) not in {"$#", "$?", "$$", "$!"}:
            self._note("shell.subscript", self._words.raw(node))

    def _operator(self, node: Node, operator: str, *, double: bool) -> None:
        if operator in {"-v", "-R"}:
            self._note("shell.subscript", operator)
        elif double and operator in _EVALUATED:
            sides = [self._words.raw(child) for child in node.children if child.type != "test_operator"]
            if not all(_NUMBER.fullmatch(side) for side in sides):
                self._note("shell.subscript", " ".join(sides))


_CALM: Final = re.compile(r"[^$`<(\n]*(?:\$)?")
_Handler = Callable[[_Walker, Node], None]
# `each` walks the children, so their own types must be known too; an ERROR node was noted by the parse finding.
_HANDLERS: Final[dict[str, _Handler]] = {
    "command": _Walker._plain_command,
    "variable_assignment": _Walker._assignment,
    "declaration_command": _Walker._declaration,
    "unset_command": _Walker._unset,
    "redirected_statement": _Walker._redirected,
    "list": _Walker._list,
    "pipeline": _Walker._pipeline,
    "subshell": _Walker._scoped,
    "compound_statement": _Walker._compound,
    "for_statement": _Walker._for,
    "c_style_for_statement": _Walker._counted,
    "function_definition": _Walker._function,
    "test_command": _Walker._test,
    "comment": _Walker._comment,
    "variable_name": _Walker._skip,
    "special_variable_name": _Walker._skip,
    "heredoc_content": _Walker._skip,
    "string_content": _Walker._skip,
    "regex": _Walker._pattern,
    "extglob_pattern": _Walker._pattern,
    **dict.fromkeys(
        listed(
            "program variable_assignments negated_command if_statement elif_clause else_clause while_statement do_group "
            "case_statement case_item ERROR"
        ),
        _Walker._each,
    ),
    **dict.fromkeys(
        listed(
            "word number raw_string string concatenation simple_expansion expansion command_substitution "
            "process_substitution arithmetic_expansion brace_expression ansi_c_string translated_string"
        ),
        _Walker._word,
    ),
}
