"""Law 1 in the syntax tree: only the gate names the function that mints permits."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import proctor
from tests.layers.tree import ROOT

SOURCE = Path(proctor.__file__).parent
MINTERS = ("gate/", "testing/permits.py", "protocol/permits.py")
SECRETS = {"mint_permit", "_KEY", "_seal", "_spent"}


def _named(tree: ast.AST) -> set[str]:
    """Every identifier, attribute, imported name and string of a file: getattr is no way around."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.alias):
            names |= {node.name, node.asname or ""}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return names


def _imports(tree: ast.AST, word: str) -> bool:
    found = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom | ast.Import))
    return any(word in ast.unparse(node) for node in found)


def test_only_the_gate_names_the_mint() -> None:
    """No file outside the gate says `mint_permit`, not even as a string."""
    guilty = []
    for path in SOURCE.rglob("*.py"):
        inside = path.relative_to(SOURCE).as_posix()
        if inside.startswith(MINTERS):
            continue
        tree = ast.parse(path.read_text())
        wanted = SECRETS if _imports(tree, "permits") else {"mint_permit"}
        if found := _named(tree) & wanted:
            guilty.append(f"{inside}: {', '.join(sorted(found))}")
    assert not guilty, "only proctor.gate may mint permits:\n" + "\n".join(guilty)


def test_no_product_code_uses_the_permits_for_tests() -> None:
    """The tests' door is for tests and rehearsals alone."""
    guilty = [
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if not path.relative_to(SOURCE).as_posix().startswith("testing/")
        and _imports(ast.parse(path.read_text()), "testing.permits")
    ]
    assert guilty == []


# What handlers must not do themselves: the doors that demand a permit do it for them.
RAW = {
    "Popen",
    "chmod",
    "copyfile",
    "copytree",
    "create_subprocess_exec",
    "create_subprocess_shell",
    "execv",
    "fork",
    "hardlink_to",
    "mkdir",
    "posix_spawn",
    "rename",
    "rmtree",
    "symlink_to",
    "system",
    "truncate",
    "unlink",
    "write_bytes",
    "write_text",
}
# The functions of lower rooms that change a workspace or run a program for a call.
DOORS = {
    "sandbox/run.py": ["run", "run_sync"],
    "workspace/files.py": ["write_atomic"],
    "workspace/restore.py": ["restore"],
    "workspace/undo.py": ["undo"],
}


def test_tool_handlers_name_no_raw_writer_and_no_spawner() -> None:
    """A tool acts only through doors that demand its permit."""
    guilty = []
    for path in (SOURCE / "tools").rglob("*.py"):
        tree = ast.parse(path.read_text())
        called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        if found := (called & RAW) | ({"subprocess"} if _imports(tree, "subprocess") else set()):
            guilty.append(f"{path.name}: {', '.join(sorted(found))}")
    assert guilty == []


def test_every_door_demands_a_permit() -> None:
    """`permit` is a keyword without default, and the function redeems it or hands it on."""
    for name, wanted in DOORS.items():
        tree = ast.parse((SOURCE / name).read_text())
        functions = [
            node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        found = {function.name: function for function in functions if function.name in wanted}
        assert sorted(found) == sorted(wanted), name
        for function in found.values():
            required = {
                argument.arg
                for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
                if default is None
            }
            assert "permit" in required, f"{name}: {function.name}"
            body = ast.unparse(ast.Module(function.body, []))
            assert "redeem_permit(permit" in body or "permit=permit" in body, f"{name}: {function.name}"


def test_only_the_gate_calls_a_handler() -> None:
    """Nobody reaches a tool's handlers around the gate."""
    guilty = [
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if any(
            isinstance(node, ast.Attribute) and node.attr in {"handlers", "handler"} and _is_of_a_tool(node)
            for node in ast.walk(ast.parse(path.read_text()))
        )
    ]
    assert sorted(guilty) == ["gate/adapters.py", "gate/gate.py", "protocol/tools.py", "tools/registry.py"]


def _is_of_a_tool(node: ast.Attribute) -> bool:
    return ast.unparse(node.value).split(".")[-1] in {"tool", "self", "binding"}


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Calls through the real gate in a process whose every spawn and write is watched."""
    place = tmp_path_factory.mktemp("audited")
    done = subprocess.run(
        [sys.executable, "-m", "tests.layers.audited", str(place)],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=ROOT,
        env={**os.environ, "HOME": str(place)},
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_every_act_of_a_call_follows_a_redeemed_permit(audited: list[dict[str, Any]]) -> None:
    """Writing and running redeem a permit before the first spawn or write; reading does neither."""
    write, read, listing, command = audited[:4]
    for one in (write, read, listing, command):
        assert one["ok"], one
        assert one["stopped"] == []
    assert write["redeemed"] == command["redeemed"] == 1
    assert write["allowed"] != []
    assert command["allowed"] != []
    assert (read["redeemed"], read["allowed"], listing["allowed"]) == (0, [], [])
    assert audited[-1]["files"] == ["b.txt", "c.txt", "proctor.toml"]


def test_handler_that_acts_without_its_permit_is_seen(audited: list[dict[str, Any]]) -> None:
    """The hook itself works: a cheating handler is stopped, however it tries."""
    for cheat in audited[4:7]:
        assert not cheat["ok"]
        assert cheat["stopped"] != []
        assert "without a redeemed permit" in cheat["error"]
