"""The policy: reads commands and paths and answers allow, ask or deny with the rule and the reason. Runs nothing."""

from __future__ import annotations

from proctor.gate.policy.commands import judge_command
from proctor.gate.policy.decision import Decision, Effect, Kind, Part
from proctor.gate.policy.paths import judge_path
from proctor.gate.policy.posture import POSTURES, Posture, posture_of
from proctor.gate.policy.rules import Origin, Rule, RuleSet, builtin_rules, load_rules, rules_from_settings

__all__ = [
    "POSTURES",
    "Decision",
    "Effect",
    "Kind",
    "Origin",
    "Part",
    "Posture",
    "Rule",
    "RuleSet",
    "builtin_rules",
    "judge_command",
    "judge_path",
    "load_rules",
    "posture_of",
    "rules_from_settings",
]
