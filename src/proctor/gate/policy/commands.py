"""Judges a command line: every simple command, every redirect, every setting; the strictest finding decides.

Invariants: nothing unread is allowed; a deny is never loosened; what cannot be taken back asks in every profile; where
nobody can be asked, ask is deny. The policy is for intent and dialogue: the sandbox is the boundary.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from typing import Final

from proctor.gate.policy.decision import Decision, Effect, Finding, Kind, Part
from proctor.gate.policy.environment import steers_code
from proctor.gate.policy.findings import finding
from proctor.gate.policy.paths import place_finding
from proctor.gate.policy.posture import Posture, posture_of
from proctor.gate.policy.programs import program_finding, text_options
from proctor.gate.policy.resolve import Resolution, Resolved, fetches, resolve
from proctor.gate.policy.rules import Args, Origin, Rule, RuleSet, builtin_rules
from proctor.gate.policy.shell import HERE, Redirect
from proctor.gate.policy.words import Word

__all__ = ["judge_command"]

_CODES: Final = {
    Effect.ALLOW: "command_allowed",
    Effect.ASK: "command_needs_approval",
    Effect.DENY: "command_denied",
}
_NO_RULE: Final = Finding(Effect.ASK, "no-rule", "no rule knows this command")
_NOTHING: Final = Finding(Effect.ALLOW, "shell.settings", "only sets variables of its own shell")
_SCRIPT: Final = Finding(
    Effect.ALLOW, "run.script", "runs the project's own code inside the sandbox", kind=Kind.RUN
)
_FUNCTION: Final = Finding(
    Effect.ALLOW, "shell.function-call", "calls a function of this line, whose commands are judged"
)
_READS: Final = frozenset({"<", "<&", "0<"})
_MAX_REDIRECTS: Final = 200
_BENIGN: Final = (".log", ".txt", ".out", ".err")
_CONTENT: Final = frozenset({"tee", "sed", "patch"})
# Programs that print one file name per line, and those that only pass lines on.
_NAMERS: Final = frozenset({"find", "fd"})
_PASSERS: Final = frozenset({"sort", "uniq", "head", "tail", "grep"})


def judge_command(
    text: str,
    *,
    profile: str | Posture = "standard",
    rules: RuleSet | None = None,
    attended: bool = True,
    roots: Sequence[str] = (),
) -> Decision:
    """Decide about one command line; never raises for any text, only for an unknown profile."""
    posture = posture_of(profile)
    resolution = resolve(text)
    judge = _Judge(resolution, rules or builtin_rules(), roots, posture)
    parts = [judge.part(command) for command in resolution.commands]
    redirects = map(judge.redirect, resolution.redirects[:_MAX_REDIRECTS])
    parts += [part for part in redirects if part is not None]
    findings = [*resolution.findings, *judge.line_findings()]
    if len(resolution.redirects) > _MAX_REDIRECTS:
        findings.append(finding("shell.many"))
    found = [Finding(part.effect, part.rule, part.reason, kind=part.kind) for part in parts] + findings
    worst = max(found, key=_weight, default=_NOTHING)
    irreversible = judge.irreversible or any(one.irreversible for one in findings)
    return _finished(worst, tuple(parts), irreversible, posture, attended=attended)


def _weight(one: Finding) -> tuple[int, int]:
    """The strictest decides; of what is allowed, what does most is named."""
    return one.effect.rank, one.kind if one.effect is Effect.ALLOW else 0


def _finished(
    worst: Finding, parts: tuple[Part, ...], irreversible: bool, posture: Posture, *, attended: bool
) -> Decision:
    effect, reason, code = worst.effect, worst.reason, _CODES[worst.effect]
    if effect is Effect.ASK and not (attended and posture.asks):
        effect, code, reason = Effect.DENY, "unattended_denied", f"{reason}; nobody is there to ask"
    return Decision(effect, worst.rule, reason, code, irreversible, parts)


class _Judge:
    """One line being judged."""

    def __init__(
        self, resolution: Resolution, rules: RuleSet, roots: Sequence[str], posture: Posture
    ) -> None:
        self._resolution = resolution
        self._rules = rules
        self._roots = roots
        self._posture = posture
        self._runs_project = False
        self._writes_content = False
        self.irreversible = False

    def part(self, command: Resolved) -> Part:
        """Judge one simple command."""
        found = self._command(command)
        return self._part(command.argv, found)

    def redirect(self, redirect: Redirect) -> Part | None:
        """Judge one redirect as the act it is; None when it only reads what the line may read, or goes nowhere."""
        found = self._redirect(redirect)
        return self._part((redirect.operator, redirect.target.text), found) if found else None

    def _part(self, argv: tuple[str | None, ...], found: Sequence[Finding]) -> Part:
        worst = max(found, key=_weight)
        self.irreversible = self.irreversible or any(one.irreversible for one in found)
        return Part(argv, worst.effect, worst.rule, worst.reason, worst.kind)

    def line_findings(self) -> list[Finding]:
        """Judge what belongs to the whole line; call after all parts."""
        found = _settings(self._resolution.settings)
        if self._runs_project and self._writes_content:
            found.append(finding("shell.write-then-run"))
        return found

    def _command(self, command: Resolved) -> list[Finding]:
        found = [*command.findings, *_settings(command.settings)]
        name = command.words[0].text
        if command.inline:
            found.append(self._inline(command))
        if name is None:
            return [*found, finding("shell.unknown-command")]
        if name in self._resolution.functions:
            return [*found, *self._function(name)]
        rule, kind, args = self._rule(command)
        found.append(rule)
        if command.script:
            found.extend(self._project_file(command))
        if rule.effect is Effect.ALLOW:
            found.extend(self._arguments(command, name, kind, args))
            found.extend(self._profile(kind))
        return found

    def _project_file(self, command: Resolved) -> list[Finding]:
        """What is run by its path must lie in the project; scratch directories do not count."""
        texts = (
            [command.argv[0] or ""]
            if "/" in (command.argv[0] or "")
            else [text or "" for text in command.argv[1:]]
        )
        path = next((text for text in texts if not text.startswith("-")), "")
        if path.startswith("/") and not any(path.startswith(root.rstrip("/") + "/") for root in self._roots):
            return [Finding(Effect.ASK, "run.outside", f"runs a program outside the workspace: {path[:120]}")]
        found = place_finding(path, command.origin.places, write=False, roots=self._roots)
        return [found] if found else []

    def _profile(self, kind: Kind) -> list[Finding]:
        if kind in self._posture.free:
            return []
        verb = {Kind.READ: "reading", Kind.EDIT: "editing files", Kind.RUN: "running project code"}[kind]
        return [Finding(Effect.ASK, "profile", f"the profile {self._posture.name} asks before {verb}")]

    def _function(self, name: str) -> list[Finding]:
        # A function may hide a known command only if that changes nothing for the better.
        return [finding("shell.function", name)] if self._rules.matching((name,)) else [_FUNCTION]

    def _inline(self, command: Resolved) -> Finding:
        """Code given in the line or on standard input; from the network it is refused."""
        for other in self._resolution.commands:
            if id(other.origin) in command.upstream and fetches(other.argv):
                return finding("shell.fetch-and-run", other.argv[0] or "")
        return finding("shell.inline-code", command.argv[0] or "")

    def _rule(self, command: Resolved) -> tuple[Finding, Kind, Args]:
        """Find the rule that decides: the strictest; a user's allow loosens an ask that can be taken back."""
        matching = [rule for view in command.views for rule in self._rules.matching(view)]
        counted = [
            rule for rule in matching if rule.effect is not Effect.ALLOW or rule.origin is Origin.BUILTIN
        ]
        if command.script:
            self._runs_project = True
        worst = max(counted, key=lambda rule: rule.weight, default=None)
        user = next(
            (rule for rule in matching if rule.effect is Effect.ALLOW and rule.origin is Origin.USER), None
        )
        if worst is None or worst.effect is Effect.ALLOW:
            if command.script:
                return _SCRIPT, Kind.RUN, Args.LITERAL
            if worst is not None:
                return self._allowed(worst), worst.kind, worst.args
        if user is not None and (worst is None or self._may_loosen(worst)):
            return self._allowed(user), user.kind, user.args
        if worst is None:
            return _NO_RULE, Kind.RUN, Args.LITERAL
        return Finding(worst.effect, worst.id, worst.reason, worst.irreversible), worst.kind, worst.args

    @staticmethod
    def _may_loosen(rule: Rule) -> bool:
        return rule.effect is Effect.ASK and rule.origin is Origin.BUILTIN and not rule.irreversible

    def _allowed(self, rule: Rule) -> Finding:
        if rule.kind is Kind.RUN and rule.origin is Origin.BUILTIN:
            self._runs_project = True
        return Finding(Effect.ALLOW, rule.id, rule.reason, kind=rule.kind)

    # ── arguments ─────────────────────────────────────────────────────────────────────────────────────────────

    def _arguments(self, command: Resolved, name: str, kind: Kind, args: Args) -> list[Finding]:
        special = program_finding(name, command.words)
        found = [special] if special else []
        if args is Args.TEXT:
            return found
        if kind is Kind.EDIT and name in _CONTENT and not _only_logs(command.argv):
            self._writes_content = True
        rest = list(_file_words(name, command.words[1:], args))
        tame = self._names_come_from_files(command)
        for word, attached in rest:
            write = kind is Kind.EDIT
            found.extend(self._argument(word, attached, command, write=write, args=args, tame=tame))
        return found

    def _argument(
        self, word: Word, attached: str | None, command: Resolved, *, write: bool, args: Args, tame: bool
    ) -> Iterable[Finding]:
        if word.text is None:
            if not (word.harmless or tame) or args is Args.LITERAL:
                yield finding("shell.unknown-word")
            return
        text = word.text if attached is None else attached
        one = place_finding(text, command.origin.places, write=write, roots=self._roots)
        if one is not None:
            yield one

    def _names_come_from_files(self, command: Resolved) -> bool:
        """Whether run-time words are names of files listed by find, fd, git ls-files, rg -l or grep -l."""
        if command.origin.words[0].text != "xargs":
            return False
        names = [other.argv for other in self._resolution.commands if id(other.origin) in command.upstream]
        if not names:
            return False
        return all(_lists_files(argv) or argv[0] in _PASSERS for argv in names) and _lists_files(names[0])

    def _redirect(self, redirect: Redirect) -> list[Finding]:
        operator, target = redirect.operator, redirect.target
        write = operator not in _READS
        if target.text is None:
            return [] if target.harmless and not write else [finding("shell.unknown-target")]
        if operator.endswith("&") and target.text.rstrip("-").isdigit():
            return []
        found = place_finding(target.text, redirect.places or HERE, write=write, roots=self._roots)
        if found:
            return [found]
        if not write or target.text.startswith("/dev/"):
            return []
        self._writes_content = self._writes_content or not target.text.endswith(_BENIGN)
        reason = f"writes {target.text[:120]}, which can be taken back"
        return [Finding(Effect.ALLOW, "edit.redirect", reason, kind=Kind.EDIT), *self._profile(Kind.EDIT)]


def _only_logs(argv: Sequence[str | None]) -> bool:
    return all((text or "").endswith(_BENIGN) or (text or "").startswith("-") for text in argv[1:])


def _lists_files(argv: Sequence[str | None]) -> bool:
    name, rest = argv[0], [text or "" for text in argv[1:]]
    if name in _NAMERS:
        return True
    if name == "git":
        return bool(rest) and rest[0] == "ls-files"
    lists = any(
        text in {"--files", "--files-with-matches"} or (text.startswith("-") and "l" in text) for text in rest
    )
    return name in {"rg", "grep"} and lists


def _settings(settings: Iterable[tuple[str, Word]]) -> list[Finding]:
    return [finding("shell.environment", name) for name, value in settings if steers_code(name, value)]


def _file_words(name: str, words: Sequence[Word], args: Args) -> Iterable[tuple[Word, str | None]]:
    """Give the words that may be file names; for an option with a value attached, the value."""
    skip = args is Args.PATTERN and not any(
        (word.text or "").startswith(("-e", "--regexp", "--files")) for word in words
    )
    texts = text_options(name)
    options, after = True, False
    for word in words:
        text = word.text
        if after:
            after = False
            if text is not None:
                continue
        if text is None:
            skip = False
            yield word, None
        elif options and text.startswith("-") and len(text) > 1:
            options = text != "--"
            after = text in texts
            value = _attached(text)
            if value is not None:
                yield word, value
        elif skip:
            skip = False
        else:
            yield word, None


def _attached(option: str) -> str | None:
    """Give the value in `--x=VALUE` or `-xVALUE` when it looks like a path that leads somewhere else."""
    value = (
        option.split("=", 1)[1]
        if "=" in option
        else option.lstrip("-")[1:]
        if not option.startswith("--")
        else ""
    )
    if value.startswith(("/", "~", "..")) and len(value) > 1:
        return value
    return value if "=" in option and posixpath.basename(value) and "/" in value else None
