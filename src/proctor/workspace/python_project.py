"""How a Python project is set up, tested and linted: by its manager, else in a `.venv` of its own."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from proctor.workspace.root import Ecosystem, Root, table

__all__ = ["python_project"]

FILES = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "Pipfile", "tox.ini", "manage.py")
REQUIREMENTS = ("requirements.txt", "requirements-dev.txt", "requirements_dev.txt", "dev-requirements.txt")
#: With one of these a stray test in Python does not make a Python project.
OTHERS = (
    "package.json",
    "go.mod",
    "Cargo.toml",
    "pom.xml",
    "build.gradle",
    "composer.json",
    "Gemfile",
    "Makefile",
)
PLACES = ("tests", "test", ".")
EXTRAS = ("dev", "test", "tests", "testing", "lint")


class Manager(NamedTuple):
    """How a project's manager installs, and how its interpreter and its programs are started."""

    setup: tuple[str, ...]
    python: str
    program: str


def python_project(root: Root) -> Ecosystem | None:
    """Describe a Python project, or None if this is none."""
    if not root.has(*FILES):
        # A few files with tests beside them are a project too, with nothing to install.
        test = [] if root.has(*OTHERS) else _by_tests(root)
        return (
            Ecosystem("python", (), _spelt(test, Manager((), "python3", "python3 -m ")), ()) if test else None
        )
    project = root.toml("pyproject.toml")
    test, lint = _test(root, project), _lint(root, project)
    tools = [
        word.removeprefix("PROGRAM ").split()[0] for word in (*test, *lint) if word.startswith("PROGRAM ")
    ]
    manager = _manager(root, project) or _plain(root, project, tools)
    return Ecosystem("python", manager.setup, _spelt(test, manager), _spelt(lint, manager))


def _spelt(commands: list[str], manager: Manager) -> tuple[str, ...]:
    spelt = (command.replace("PYTHON ", f"{manager.python} ", 1) for command in commands)
    return tuple(command.replace("PROGRAM ", manager.program, 1) for command in spelt)


def _manager(root: Root, project: dict[str, Any]) -> Manager | None:
    tools = table(project, "tool")
    if root.has("uv.lock") or "uv" in tools:
        return Manager(
            ("uv sync --locked" if root.has("uv.lock") else "uv sync",), "uv run python", "uv run "
        )
    for name in ("poetry", "pdm"):
        if root.has(f"{name}.lock") or name in tools:
            return Manager((f"{name} install",), f"{name} run python", f"{name} run ")
    if root.has("Pipfile"):
        return Manager(("pipenv install --dev",), "pipenv run python", "pipenv run ")
    return None


def _plain(root: Root, project: dict[str, Any], tools: list[str]) -> Manager:
    """Without a manager: an environment in the checkout, because the user's own is not ours to change."""
    python = ".venv/bin/python"
    extras = [name for name in EXTRAS if name in table(project, "project", "optional-dependencies")]
    wanted = [f"-r {name}" for name in REQUIREMENTS if root.has(name)]
    if "project" in project or "build-system" in project or root.has("setup.py"):
        wanted.append(f"-e '.[{','.join(extras)}]'" if extras else "-e .")
    known = _declared(root, project, extras)
    wanted += [" ".join(lacking)] if (lacking := [tool for tool in tools if tool not in known]) else []
    installs = [f"{python} -m pip install {each}" for each in wanted]
    return Manager(("python3 -m venv .venv", *installs), python, f"{python} -m ")


def _declared(root: Root, project: dict[str, Any], extras: list[str]) -> set[str]:
    """The names of all packages that the installation above brings."""
    optional = table(project, "project", "optional-dependencies")
    lists = [table(project, "project").get("dependencies"), *(optional.get(name) for name in extras)]
    lines = [line for each in lists if isinstance(each, list) for line in each if isinstance(line, str)]
    lines += [line for name in REQUIREMENTS for line in root.text(name).splitlines()]
    return {
        m[0].lower().replace("_", "-") for line in lines if (m := re.match(r"[A-Za-z0-9._-]+", line.strip()))
    }


def _test(root: Root, project: dict[str, Any]) -> list[str]:
    tools = table(project, "tool")
    texts = [
        root.text(name) for name in ("pyproject.toml", "setup.py", "setup.cfg", "Pipfile", *REQUIREMENTS)
    ]
    if root.has("pytest.ini", "conftest.py", "tests/conftest.py") or re.search(
        r"\bpytest\b", "\n".join(texts)
    ):
        return ["PROGRAM pytest"]
    if root.has("manage.py"):
        return ["PYTHON manage.py test"]
    if root.has("tox.ini") or "tox" in tools:
        return ["tox"]
    if root.has("noxfile.py"):
        return ["nox"]
    return _by_tests(root)


def _by_tests(root: Root) -> list[str]:
    """What the tests themselves ask for: plain functions need pytest, classes run with what Python brings along."""
    for place in PLACES:
        texts = [
            text for text in root.texts(f"{place}/test*.py") if re.search(r"\bdef test|\bunittest\b", text)
        ]
        if any(
            re.search(r"^(?:import pytest|from pytest|(?:async )?def test)", text, re.MULTILINE)
            for text in texts
        ):
            return ["PROGRAM pytest"]
        if texts:
            top = " -t ." if root.has(f"{place}/__init__.py") and place != "." else ""
            return [f"PYTHON -m unittest discover{'' if place == '.' else f' -s {place}'}{top}"]
    return []


def _lint(root: Root, project: dict[str, Any]) -> list[str]:
    tools, configs = table(project, "tool"), root.text("setup.cfg") + root.text("tox.ini")
    found = []
    if "ruff" in tools or root.has("ruff.toml", ".ruff.toml"):
        found.append("PROGRAM ruff check .")
    elif root.has(".flake8") or "[flake8]" in configs:
        found.append("PROGRAM flake8")
    elif "pylint" in tools or root.has(".pylintrc", "pylintrc"):
        found.append("PROGRAM pylint --recursive=y .")
    if "mypy" in tools or root.has("mypy.ini", ".mypy.ini") or "[mypy]" in configs:
        found.append("PROGRAM mypy" if table(tools, "mypy").get("files") else "PROGRAM mypy .")
    if "black" in tools:
        found.append("PROGRAM black --check .")
    return found
