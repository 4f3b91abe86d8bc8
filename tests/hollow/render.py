"""A problem as the files of a small project: source, tests, and the command that runs them."""

from __future__ import annotations

import sys

from tests.hollow.problems import Calls, Problem

__all__ = ["COMMANDS", "source_path", "source_paths", "suite_of", "suite_path"]

COMMANDS = {
    "python": f"{sys.executable} -m unittest discover -v -s tests -t .",
    "javascript": "node --test",
    "shell": "bash tests/test_all.sh",
}
_PATHS = {
    "python": ("{}.py", "tests/test_{}.py"),
    "javascript": ("{}.js", "tests/{}.test.js"),
    "shell": ("{}.sh", "tests/test_all.sh"),
}


def source_path(problem: Problem, name: str | None = None) -> str:
    """Where the function lives."""
    return _PATHS[problem.language][0].format(name or problem.name)


def suite_path(problem: Problem, name: str | None = None) -> str:
    """Where its tests live."""
    return _PATHS[problem.language][1].format(name or problem.name)


def source_paths(problem: Problem) -> dict[str, str]:
    """Files a project of this language needs besides source and tests."""
    return {"tests/__init__.py": ""} if problem.language == "python" else {}


def suite_of(problem: Problem, calls: Calls, *, skip: int = -1, weaken: bool = False, extra: str = "") -> str:
    """The test file for some calls; `skip` marks one of them, `weaken` makes every check trivial."""
    build = {"python": _python, "javascript": _script, "shell": _shell}[problem.language]
    return build(problem, calls, skip, weaken) + extra


def _python(problem: Problem, calls: Calls, skip: int, weaken: bool) -> str:
    lines = [
        "import unittest",
        "",
        f"from {problem.name} import {problem.name}",
        "",
        "",
        "class Tests(unittest.TestCase):",
    ]
    for number, (call, wanted) in enumerate(calls):
        if number == skip:
            lines.append('    @unittest.skip("later")')
        check = f"self.assertIsNotNone({call})" if weaken else f"self.assertEqual({call}, {wanted})"
        lines += [f"    def test_{number}(self):", f"        {check}", ""]
    return "\n".join(lines)


def _script(problem: Problem, calls: Calls, skip: int, weaken: bool) -> str:
    lines = ["const test = require('node:test');", "const assert = require('node:assert');"]
    lines.append(f"const {{ {problem.name} }} = require('../{problem.name}.js');")
    for number, (call, wanted) in enumerate(calls):
        word = "test.skip" if number == skip else "test"
        check = f"assert.ok({call} !== undefined)" if weaken else f"assert.deepStrictEqual({call}, {wanted})"
        lines.append(f"{word}('{problem.name} {number}', () => {{ {check}; }});")
    return "\n".join(lines) + "\n"


def _shell(problem: Problem, calls: Calls, skip: int, weaken: bool) -> str:
    lines = ["#!/bin/bash", 'cd "$(dirname "$0")/.." || exit 1', "failed=0"]
    lines.append(
        'check() { if [ "$2" = "$3" ]; then echo "ok - $1"; else echo "not ok - $1: $2 instead of $3"; failed=1; fi; }'
    )
    for number, (call, wanted) in enumerate(calls):
        piped = call.replace(f"| {problem.name}", f"| bash {problem.name}.sh")
        named = "bash " + piped.replace(problem.name, f"{problem.name}.sh", 1)
        line = piped if piped.startswith(("printf", "seq")) else named
        text = f'check "{problem.name} {number}" "$({line})" "{wanted}"'
        if weaken:
            text = f'[ -n "$({line})" ] && echo "ok - {problem.name} {number}"'
        lines.append(f"# skipped: {text}" if number == skip else text)
    return "\n".join([*lines, "exit $failed"]) + "\n"
