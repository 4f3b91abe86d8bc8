"""Whether a command line can fail at all, and where it drops the status of what it runs.

Read from the syntax tree of tree-sitter-bash. Invariant: what cannot be read is taken to be able to fail, so an honest
command is never called one that cannot; `hides` and `never` are facts about the text alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tree_sitter import Node

from proctor.gate.policy.lists import listed
from proctor.gate.policy.parsing import parse

__all__ = ["Status", "read_status"]

#: Succeed whatever they are given.
_NEVER: Final = frozenset(
    {"true", ":", "echo", "printf", "pwd", "date", "sleep", "set", "export", "unset", "local", "cd"}
)
#: Show something; they fail only when the thing to show is missing.
_SHOWS: Final = listed(
    "cat head tail ls wc sed awk find sort uniq cut tr tee less more nl bat column fold tac rev basename dirname realpath "
    "stat file du df tree env whoami ps which type history xxd od strings"
)
_GIT_SHOWS: Final = frozenset({"log", "show", "diff", "status", "branch", "blame", "ls-files", "rev-parse"})
_GIT_CHECKS: Final = frozenset({"--exit-code", "--quiet", "--error-unmatch", "--check", "--verify", "-q"})
_BEFORE: Final = frozenset(
    {"cd", "set", "export", "source", ".", "shopt", "unset", "local", "declare", "trap", "pushd", "umask"}
)
_PASSES: Final = frozenset({"timeout", "env", "nice", "time", "command", "exec", "stdbuf", "nohup"})


@dataclass(slots=True)
class Status:
    """What is known of a line's exit status."""

    broken: bool = False
    never: bool = False
    #: Why the line cannot fail: the words that swallow the status.
    swallowed_by: str = ""
    #: Only shows something: fails at most when a file is missing.
    only_shows: bool = False
    #: Parts whose status is dropped, each with what drops it.
    hides: list[tuple[str, str]] = field(default_factory=list)
    background: bool = False


def read_status(text: str) -> Status:
    """Read one command line; never raises."""
    try:
        source = text.encode()
    except UnicodeEncodeError:
        return Status(broken=True)
    root = parse(source) if len(source) <= 32 * 1024 else None
    if root is None or root.has_error:
        return Status(broken=True)
    reader = _Reader(source)
    try:
        outcome = reader.body(root)
    except RecursionError:
        return Status()
    status = Status(hides=reader.hides, background=reader.background)
    status.never = outcome in {"never", "shows"}
    status.only_shows = outcome == "shows"
    status.swallowed_by = reader.swallowed
    return status


class _Reader:
    """One walk; an outcome is "fails" (can fail), "shows" (only if something is missing) or "never"."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._errexit = False
        self._pipefail = False
        self.hides: list[tuple[str, str]] = []
        self.swallowed = ""
        self.background = False

    def _raw(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def body(self, node: Node) -> str:
        """The outcome of statements one after the other: the last decides, unless `set -e` holds."""
        outcome, statements = (
            "never",
            [child for child in node.children if child.is_named and child.type != "comment"],
        )
        any_fails = False
        for place, child in enumerate(statements):
            outcome = self.outcome(child)
            any_fails = any_fails or outcome == "fails"
            if self._in_background(child):
                self.background = True
                self.hides.append((self._raw(child), "&"))
                outcome = "never"
            elif (
                place < len(statements) - 1
                and outcome == "fails"
                and not self._prepares(child)
                and not self._errexit
            ):
                self.hides.append((self._raw(child), ";" if b"\n" not in self._source else "a new line"))
        if self._errexit and any_fails:
            return "fails"
        return outcome

    def _in_background(self, node: Node) -> bool:
        after = node.next_sibling
        return after is not None and after.type == "&"

    def _prepares(self, node: Node) -> bool:
        return self._name(node) in _BEFORE or node.type in {
            "variable_assignment",
            "declaration_command",
            "function_definition",
        }

    def _name(self, node: Node) -> str:
        name = node.child_by_field_name("name") if node.type == "command" else None
        return self._raw(name).rsplit("/", 1)[-1] if name is not None else ""

    def outcome(self, node: Node) -> str:
        """The outcome of one statement."""
        handler = getattr(self, f"_on_{node.type}", None)
        answer: str = handler(node) if handler is not None else "fails"
        return answer

    def _on_list(self, node: Node) -> str:
        left, right = node.children[0], node.children[-1]
        operator = node.children[1].type
        first, second = self.outcome(left), self.outcome(right)
        if operator == "||":
            if first == "fails" and second == "never":
                self.swallowed = f"|| {self._raw(right)}"
            return second if first != "never" else "never"
        return max((first, second), key=("never", "shows", "fails").index)

    def _on_pipeline(self, node: Node) -> str:
        parts = [child for child in node.children if child.is_named]
        outcomes = [self.outcome(child) for child in parts]
        if self._pipefail:
            return max(outcomes, key=("never", "shows", "fails").index)
        last = outcomes[-1]
        if last != "fails" and "fails" in outcomes[:-1]:
            self.hides.append((self._raw(parts[outcomes.index("fails")]), f"| {self._raw(parts[-1])}"))
        return last

    def _on_redirected_statement(self, node: Node) -> str:
        inner = node.child_by_field_name("body")
        return self.outcome(inner) if inner is not None else "never"

    def _on_negated_command(self, node: Node) -> str:
        return "fails"

    def _on_variable_assignment(self, node: Node) -> str:
        return "never"

    _on_variable_assignments = _on_declaration_command = _on_unset_command = _on_variable_assignment
    _on_function_definition = _on_variable_assignment

    def _on_subshell(self, node: Node) -> str:
        before = self._errexit, self._pipefail
        answer = self.body(node)
        self._errexit, self._pipefail = before
        return answer

    def _on_compound_statement(self, node: Node) -> str:
        return self.body(node)

    def _on_do_group(self, node: Node) -> str:
        return self.body(node)

    def _on_for_statement(self, node: Node) -> str:
        inner = node.child_by_field_name("body")
        return self.outcome(inner) if inner is not None else "fails"

    _on_while_statement = _on_for_statement

    def _on_if_statement(self, node: Node) -> str:
        answers = ["never"]
        condition = node.child_by_field_name("condition")
        branch: list[Node] = []
        for child in node.children:
            if child.type in {"elif_clause", "else_clause"}:
                answers.append(self._clause(child))
            elif child.is_named and child != condition:
                branch.append(child)
        if branch:
            answers.append(self.outcome(branch[-1]))
        answer = max(answers, key=("never", "shows", "fails").index)
        if answer == "never":
            self.swallowed = self.swallowed or "if … fi without a failing branch"
        return answer

    def _clause(self, node: Node) -> str:
        named = [child for child in node.children if child.is_named]
        return self.outcome(named[-1]) if named else "never"

    def _on_case_statement(self, node: Node) -> str:
        items = [self._clause(child) for child in node.children if child.type == "case_item"]
        return max(items, key=("never", "shows", "fails").index, default="fails")

    def _on_command(self, node: Node) -> str:
        words = [
            self._raw(child).strip("\"'") for child in node.children if not child.type.endswith("_redirect")
        ]
        words = [word for word in words if "=" not in word.split("/")[0] or words.index(word) > 0]
        return self._words(words)

    def _words(self, words: list[str]) -> str:
        if not words:
            return "never"
        name, rest = words[0].rsplit("/", 1)[-1], words[1:]
        if name in _PASSES:
            inner = next(
                (
                    i
                    for i, word in enumerate(rest)
                    if not word.startswith("-") and not word[:1].isdigit() and "=" not in word
                ),
                None,
            )
            return self._words(rest[inner:]) if inner is not None else "never"
        if name in {"bash", "sh", "zsh", "dash"}:
            return self._script(rest)
        if name == "exit":
            return "never" if rest[:1] == ["0"] else "fails"
        if name == "set":
            self._options(rest)
        if name == "git":
            shows = any(word in _GIT_SHOWS for word in rest) and not any(word in _GIT_CHECKS for word in rest)
            return "shows" if shows else "fails"
        if name == "awk" and any("exit" in word for word in rest):
            return "fails"
        return "never" if name in _NEVER else "shows" if name in _SHOWS else "fails"

    def _options(self, words: list[str]) -> None:
        short = "".join(word[1:] for word in words if word.startswith("-") and not word.startswith("--"))
        self._errexit = self._errexit or "e" in short or "errexit" in words
        self._pipefail = self._pipefail or "pipefail" in words

    def _script(self, words: list[str]) -> str:
        place = next((i for i, word in enumerate(words) if word.startswith("-") and word.endswith("c")), None)
        if place is None or place + 1 >= len(words):
            return "fails"
        inner = read_status(words[place + 1])
        if inner.never and not self.swallowed:
            self.swallowed = inner.swallowed_by
        self.hides.extend(inner.hides)
        return "shows" if inner.only_shows else "never" if inner.never and not inner.broken else "fails"
