"""Rules as data: examples checked at load, strictest wins, and who may loosen what."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.gate.policy import Origin, builtin_rules, judge_command, load_rules, rules_from_settings
from proctor.gate.policy.rules import has_option
from proctor.gate.policy.settings import rules_of_workspace
from proctor.protocol.errors import ConfigError


def effect(
    text: str, *, user: dict[str, object] | None = None, project: dict[str, object] | None = None
) -> str:
    """Judge a line under extra rules."""
    return judge_command(text, rules=load_rules(user=user, project=project)).effect.value


def test_builtin_rules_have_ids_reasons_and_true_examples() -> None:
    """Every built-in rule has its own id and a reason, and loading proves its examples."""
    rules = builtin_rules().rules
    assert len({rule.id for rule in rules}) == len(rules) > 100
    assert all(rule.reason and rule.prefix for rule in rules)
    assert sum(len(rule.match) + len(rule.not_match) for rule in rules) > 100


def test_a_project_file_may_only_tighten() -> None:
    """Its deny and ask hold; its allow loosens neither a deny nor an ask nor an unknown command."""
    assert effect("ls", project={"deny": ["ls"]}) == "deny"
    assert effect("cargo build", project={"ask": ["cargo build"]}) == "ask"
    for line in ("rm -rf x", "pip install x", "unknown-tool"):
        assert effect(line, project={"allow": [line]}) == effect(line)


def test_the_user_may_loosen_an_ask_but_never_a_deny() -> None:
    """A user's allow lets an unknown or asked command pass, but nothing denied and nothing irreversible."""
    assert effect("unknown-tool --x", user={"allow": ["unknown-tool"]}) == "allow"
    assert effect("pip install x", user={"allow": ["pip install"]}) == "allow"
    assert effect("rm -rf x", user={"allow": ["rm"]}) == "deny"
    assert effect("sudo ls", user={"allow": ["sudo"]}) == "deny"
    assert effect("git push", user={"allow": ["git push"]}) == "ask"
    assert effect("pip install x; rm -rf y", user={"allow": ["pip install", "rm"]}) == "deny"


def test_the_project_tightens_what_the_user_loosened() -> None:
    """Strictest wins between user and project too."""
    assert (
        effect("pip install x", user={"allow": ["pip install"]}, project={"deny": ["pip install"]}) == "deny"
    )
    assert (
        effect("unknown-tool", user={"allow": ["unknown-tool"]}, project={"ask": ["unknown-tool"]}) == "ask"
    )


def test_a_rule_reaches_through_wrappers_and_spellings() -> None:
    """A deny of `git push` also hits options before the subcommand, wrappers and nested shells."""
    deny: dict[str, object] = {"deny": [{"prefix": ["git", ["push", "fetch"]], "reason": "by hand"}]}
    for line in (
        "git push",
        "git -C x push",
        "env git push",
        "sh -c 'git fetch'",
        "ls | xargs git push",
        "/usr/bin/git push",
    ):
        assert effect(line, project=deny) == "deny"
    assert effect("git status", project=deny) == "allow"


def test_reason_and_id_are_told() -> None:
    """The answer names the rule and repeats its reason."""
    rules = load_rules(
        project={"deny": [{"prefix": ["make", "deploy"], "reason": "only the pipeline deploys"}]}
    )
    decision = judge_command("make deploy", rules=rules)
    assert (decision.rule, decision.reason) == ("project.deny.1", "only the pipeline deploys")


@pytest.mark.parametrize(
    "policy",
    [
        {"allow": "ls"},
        {"permit": ["ls"]},
        {"deny": [1]},
        {"deny": [""]},
        {"deny": ["'unclosed"]},
        {"deny": [{"prefix": []}]},
        {"deny": [{"prefix": ["a"], "colour": "red"}]},
        {"deny": [{"prefix": ["git", "push"], "match": ["git status"]}]},
        {"deny": [{"prefix": ["git"], "not_match": ["git status"]}]},
    ],
)
def test_wrong_rules_are_refused_with_the_cure(policy: dict[str, object]) -> None:
    """A rule that cannot be read, or contradicts its own examples, is an error and never silently dropped."""
    with pytest.raises(ConfigError):
        rules_from_settings(policy, Origin.USER, where="proctor.local.toml")


def test_files_have_the_weight_of_who_wrote_them(tmp_path: Path) -> None:
    """proctor.local.toml is the user's own, unless the repository brings it along."""
    (tmp_path / "proctor.toml").write_text('[policy]\nallow = ["one"]\ndeny = ["two"]\n')
    (tmp_path / "proctor.local.toml").write_text('[policy]\nallow = ["one", "two"]\n')
    rules = rules_of_workspace(tmp_path)
    assert judge_command("one", rules=rules).allowed
    assert judge_command("two", rules=rules).effect == "deny"
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index").write_bytes(b"DIRC....proctor.local.toml\0\0")
    assert not judge_command("one", rules=rules_of_workspace(tmp_path)).allowed


def test_options_are_found_in_clusters_and_abbreviations() -> None:
    """`-rf`, `-fr`, `--recurs` and `--force=x` all count; what follows `--` does not."""
    assert has_option(("rm", "-vrf"), ("-r",))
    assert has_option(("rm", "--recurs"), ("--recursive",))
    assert has_option(("x", "--force=1"), ("--force",))
    assert not has_option(("rm", "--", "-r"), ("-r",))
    assert not has_option(("rm", "--r"), ("-r",))
