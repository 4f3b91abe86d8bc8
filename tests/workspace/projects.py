"""Small projects of every kind that `proctor init` knows, with what must be found in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["PROJECTS", "Project", "make"]

VENV = ".venv/bin/python -m"
PIP = f"{VENV} pip install"


@dataclass(frozen=True, slots=True)
class Project:
    """Files, and the commands they should lead to."""

    files: dict[str, str]
    kinds: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    lint: tuple[str, ...] = ()
    locks: tuple[str, ...] = ()


def make(root: Path, project: Project) -> None:
    """Write a project's files."""
    for name, text in project.files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


PROJECTS: dict[str, Project] = {
    "empty": Project({}),
    "uv": Project(
        {
            "pyproject.toml": "[tool.pytest.ini_options]\n[tool.ruff]\n[tool.mypy]\nfiles=['src']\n",
            "uv.lock": "",
        },
        ("python",),
        ("uv sync --locked",),
        ("uv run pytest",),
        ("uv run ruff check .", "uv run mypy"),
        ("uv.lock",),
    ),
    "poetry": Project(
        {"pyproject.toml": "[tool.poetry]\n[tool.black]\n", "tests/conftest.py": ""},
        ("python",),
        ("poetry install",),
        ("poetry run pytest",),
        ("poetry run black --check .",),
    ),
    "pipenv": Project(
        {"Pipfile": "[dev-packages]\npytest = '*'\n", "Pipfile.lock": ""},
        ("python",),
        ("pipenv install --dev",),
        ("pipenv run pytest",),
        (),
        ("Pipfile.lock",),
    ),
    "pip requirements": Project(
        {"requirements.txt": "flask\n", "requirements-dev.txt": "pytest>=8\nflake8\n", ".flake8": ""},
        ("python",),
        ("python3 -m venv .venv", f"{PIP} -r requirements.txt", f"{PIP} -r requirements-dev.txt"),
        (f"{VENV} pytest",),
        (f"{VENV} flake8",),
    ),
    "pip with extras": Project(
        {
            "pyproject.toml": "[project]\nname='x'\n[project.optional-dependencies]\ndev=['pytest', 'ruff']\n[tool.ruff]\n"
        },
        ("python",),
        ("python3 -m venv .venv", f"{PIP} -e '.[dev]'"),
        (f"{VENV} pytest",),
        (f"{VENV} ruff check .",),
    ),
    "undeclared tools": Project(
        {"setup.py": "", "pytest.ini": "", "mypy.ini": ""},
        ("python",),
        ("python3 -m venv .venv", f"{PIP} -e .", f"{PIP} pytest mypy"),
        (f"{VENV} pytest",),
        (f"{VENV} mypy .",),
    ),
    "unittest": Project(
        {"setup.cfg": "", "tests/test_x.py": "import unittest\n"},
        ("python",),
        ("python3 -m venv .venv",),
        (f"{VENV} unittest discover -s tests",),
    ),
    "unittest in a package": Project(
        {"setup.cfg": "", "tests/__init__.py": "", "tests/test_x.py": "import unittest\n"},
        ("python",),
        ("python3 -m venv .venv",),
        (f"{VENV} unittest discover -s tests -t .",),
    ),
    "plain functions": Project(
        {"setup.cfg": "", "tests/test_x.py": "def test_a():\n    assert 1\n"},
        ("python",),
        ("python3 -m venv .venv", f"{PIP} pytest"),
        (f"{VENV} pytest",),
    ),
    "files with tests beside them": Project(
        {"calc.py": "", "test_calc.py": "def test_a():\n    assert 1\n"},
        ("python",),
        (),
        ("python3 -m pytest",),
    ),
    "files with classes of tests": Project(
        {
            "calc.py": "",
            "test_calc.py": "import unittest\n\n\nclass T(unittest.TestCase):\n    def test_a(self): ...\n",
        },
        ("python",),
        (),
        ("python3 -m unittest discover",),
    ),
    "a stray test": Project(
        {"go.mod": "module x\n", "test/test_x.py": "def test_a(): ...\n"},
        ("go",),
        ("go mod download",),
        ("go test ./...",),
        ("go vet ./...",),
    ),
    "django": Project(
        {"manage.py": "", "requirements.txt": "django\n"},
        ("python",),
        ("python3 -m venv .venv", f"{PIP} -r requirements.txt"),
        (".venv/bin/python manage.py test",),
    ),
    "tox": Project({"tox.ini": "[tox]\n"}, ("python",), ("python3 -m venv .venv",), ("tox",)),
    "scripts with tests beside them": Project(
        {"calc.js": "", "calc.test.mjs": "import test from 'node:test';\n"}, ("node",), (), ("node --test",)
    ),
    "npm without a test script": Project(
        {"package.json": "{}", "test/calc.js": "const test = require('node:test');\n"},
        ("node",),
        ("npm install",),
        ("node --test",),
    ),
    "npm": Project(
        {"package.json": '{"scripts": {"test": "jest", "lint": "eslint ."}}', "package-lock.json": ""},
        ("node",),
        ("npm ci",),
        ("npm run test",),
        ("npm run lint",),
        ("package-lock.json",),
    ),
    "npm without a test": Project(
        {"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'},
        ("node",),
        ("npm install",),
    ),
    "pnpm": Project(
        {"package.json": '{"scripts": {"test": "vitest", "typecheck": "tsc"}}', "pnpm-lock.yaml": ""},
        ("node",),
        ("pnpm install --frozen-lockfile",),
        ("pnpm run test",),
        ("pnpm run typecheck",),
        ("pnpm-lock.yaml",),
    ),
    "yarn classic": Project(
        {"package.json": "{}", "yarn.lock": ""},
        ("node",),
        ("yarn install --frozen-lockfile",),
        locks=("yarn.lock",),
    ),
    "yarn berry": Project(
        {"package.json": '{"packageManager": "yarn@4.1.0"}', "yarn.lock": "", ".yarnrc.yml": ""},
        ("node",),
        ("yarn install --immutable",),
        locks=("yarn.lock",),
    ),
    "go": Project(
        {"go.mod": "module x\n", "go.sum": ""},
        ("go",),
        ("go mod download",),
        ("go test ./...",),
        ("go vet ./...",),
        ("go.sum",),
    ),
    "rust": Project(
        {"Cargo.toml": "[workspace]\n", "Cargo.lock": ""},
        ("rust",),
        ("cargo fetch --locked",),
        ("cargo test --workspace",),
        ("cargo fmt --check",),
        ("Cargo.lock",),
    ),
    "deno": Project({"deno.json": "{}"}, ("deno",), ("deno install",), ("deno test",), ("deno lint",)),
    "maven": Project(
        {"pom.xml": "", "mvnw": ""}, ("maven",), ("./mvnw -q -DskipTests compile",), ("./mvnw -q test",)
    ),
    "gradle": Project({"build.gradle.kts": ""}, ("gradle",), ("gradle testClasses",), ("gradle test",)),
    "ruby": Project(
        {"Gemfile": "gem 'rspec'\n", ".rubocop.yml": ""},
        ("ruby",),
        ("bundle install",),
        ("bundle exec rspec",),
        ("bundle exec rubocop",),
    ),
    "php": Project(
        {"composer.json": '{"scripts": {"test": "phpunit"}}'},
        ("php",),
        ("composer install",),
        ("composer run-script test",),
    ),
    "dotnet": Project(
        {"x.sln": ""},
        ("dotnet",),
        ("dotnet restore",),
        ("dotnet test",),
        ("dotnet format --verify-no-changes",),
    ),
    "elixir": Project(
        {"mix.exs": ""}, ("elixir",), ("mix deps.get",), ("mix test",), ("mix format --check-formatted",)
    ),
    "swift": Project({"Package.swift": ""}, ("swift",), ("swift package resolve",), ("swift test",)),
    "flutter": Project(
        {"pubspec.yaml": "dependencies:\n  flutter:\n    sdk: flutter\n"},
        ("flutter",),
        ("flutter pub get",),
        ("flutter test",),
        ("flutter analyze",),
    ),
    "cmake": Project(
        {"CMakeLists.txt": ""},
        ("cmake",),
        ("cmake -S . -B build",),
        ("cmake --build build && ctest --test-dir build --output-on-failure",),
    ),
    "make": Project(
        {"Makefile": "CC := gcc\ninstall:\n\tx\ntest: all\n\t./t\nlint:\n\tx\nsetup:\n\tx\n"},
        ("make",),
        ("make setup",),
        ("make test",),
        ("make lint",),
    ),
    "just": Project({"justfile": "x := '1'\ntest arg='a':\n  run\n"}, ("just",), (), ("just test",)),
    "task": Project({"Taskfile.yml": "tasks:\n  test:\n    cmds: []\n"}, ("task",), (), ("task test",)),
    "node and make": Project(
        {"package.json": '{"scripts": {"test": "jest"}}', "Makefile": "test:\n\tx\nlint:\n\tx\n"},
        ("node", "make"),
        ("npm install",),
        ("npm run test",),
        ("make lint",),
    ),
    "python and node": Project(
        {
            "pyproject.toml": "[tool.uv]\n",
            "package.json": '{"scripts": {"test": "a \\"b\\" \\\\"}}',
            "conftest.py": "",
        },
        ("python", "node"),
        ("uv sync", "npm install"),
        ("uv run pytest", "npm run test"),
    ),
}
