"""How projects of each kind are usually set up, tested and linted, told by the files in their root."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from proctor.workspace.python_project import python_project
from proctor.workspace.root import Ecosystem, Root, table

__all__ = ["ECOSYSTEMS", "LOCK_FILES", "from_targets"]

LOCK_FILES = (
    *("uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock"),
    *("pnpm-lock.yaml", "yarn.lock", "bun.lock", "bun.lockb", "package-lock.json", "npm-shrinkwrap.json"),
    *("deno.lock", "go.sum", "Cargo.lock", "Gemfile.lock", "composer.lock", "mix.lock", "gradle.lockfile"),
)
# What a target is called when it plays one of our three roles; `install` often means the whole machine.
SETUP_TARGETS = ("setup", "bootstrap", "deps")
TEST_TARGETS = ("test", "tests", "check")
LINT_TARGETS = ("lint",)


def _node(root: Root) -> Ecosystem | None:
    own = ("node --test",) if _uses_own_runner(root) else ()
    if not root.has("package.json"):
        return Ecosystem("node", (), own, ()) if own else None
    package = root.json("package.json")
    manager = _node_manager(root, str(package.get("packageManager", "")))
    scripts = {name: text for name, text in table(package, "scripts").items() if isinstance(text, str)}
    if "no test specified" in scripts.get("test", ""):
        del scripts["test"]
    checks = ("lint", "typecheck", "type-check", "check-types")
    return Ecosystem(
        "node",
        (_node_install(root, manager),),
        (f"{manager} run test",) if "test" in scripts else own,
        tuple(f"{manager} run {name}" for name in checks if name in scripts),
    )


def _uses_own_runner(root: Root) -> bool:
    """Whether tests stand where Node itself looks for them, and ask for its own runner."""
    places = ("*.test.*js", "test/*.*js", "tests/*.test.*js")
    return any("node:test" in text for place in places for text in root.texts(place))


def _node_manager(root: Root, named: str) -> str:
    locks = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun", "bun.lockb": "bun"}
    for manager in ("npm", "pnpm", "yarn", "bun"):
        if named.startswith(f"{manager}@"):
            return manager
    return next((manager for lock, manager in locks.items() if root.has(lock)), "npm")


def _node_install(root: Root, manager: str) -> str:
    if manager == "npm":
        return "npm ci" if root.has("package-lock.json", "npm-shrinkwrap.json") else "npm install"
    if manager == "yarn" and root.has("yarn.lock"):
        return "yarn install --immutable" if root.has(".yarnrc.yml") else "yarn install --frozen-lockfile"
    locked = root.has("pnpm-lock.yaml", "bun.lock", "bun.lockb")
    return f"{manager} install --frozen-lockfile" if locked else f"{manager} install"


def _deno(root: Root) -> Ecosystem | None:
    if not root.has("deno.json", "deno.jsonc"):
        return None
    return Ecosystem("deno", ("deno install",), ("deno test",), ("deno lint",))


def _go(root: Root) -> Ecosystem | None:
    if not root.has("go.mod"):
        return None
    strict = root.has(".golangci.yml", ".golangci.yaml", ".golangci.toml")
    lint = "golangci-lint run" if strict else "go vet ./..."
    return Ecosystem("go", ("go mod download",), ("go test ./...",), (lint,))


def _rust(root: Root) -> Ecosystem | None:
    if not root.has("Cargo.toml"):
        return None
    locked = " --locked" if root.has("Cargo.lock") else ""
    everything = " --workspace" if "workspace" in root.toml("Cargo.toml") else ""
    return Ecosystem("rust", (f"cargo fetch{locked}",), (f"cargo test{everything}",), ("cargo fmt --check",))


def _java(root: Root) -> Ecosystem | None:
    if root.has("pom.xml"):
        maven = "./mvnw" if root.has("mvnw") else "mvn"
        return Ecosystem("maven", (f"{maven} -q -DskipTests compile",), (f"{maven} -q test",))
    if root.has("build.gradle", "build.gradle.kts"):
        gradle = "./gradlew" if root.has("gradlew") else "gradle"
        return Ecosystem("gradle", (f"{gradle} testClasses",), (f"{gradle} test",))
    return None


def _ruby(root: Root) -> Ecosystem | None:
    if not root.has("Gemfile"):
        return None
    specs = root.has(".rspec") or root.any("spec/*_spec.rb") or "rspec" in root.text("Gemfile")
    test = "bundle exec rspec" if specs else "bundle exec rake test" if root.has("Rakefile") else ""
    lint = ("bundle exec rubocop",) if root.has(".rubocop.yml") else ()
    return Ecosystem("ruby", ("bundle install",), (test,) if test else (), lint)


def _php(root: Root) -> Ecosystem | None:
    if not root.has("composer.json"):
        return None
    scripts = table(root.json("composer.json"), "scripts")
    unit = ("vendor/bin/phpunit",) if root.has("phpunit.xml", "phpunit.xml.dist") else ()
    test = ("composer run-script test",) if "test" in scripts else unit
    return Ecosystem(
        "php", ("composer install",), test, ("composer run-script lint",) if "lint" in scripts else ()
    )


def _dotnet(root: Root) -> Ecosystem | None:
    if not any(root.any(pattern) for pattern in ("*.sln", "*.slnx", "*.csproj", "*.fsproj")):
        return None
    return Ecosystem("dotnet", ("dotnet restore",), ("dotnet test",), ("dotnet format --verify-no-changes",))


def _elixir(root: Root) -> Ecosystem | None:
    if not root.has("mix.exs"):
        return None
    return Ecosystem("elixir", ("mix deps.get",), ("mix test",), ("mix format --check-formatted",))


def _swift(root: Root) -> Ecosystem | None:
    return (
        Ecosystem("swift", ("swift package resolve",), ("swift test",)) if root.has("Package.swift") else None
    )


def _dart(root: Root) -> Ecosystem | None:
    if not root.has("pubspec.yaml"):
        return None
    tool = "flutter" if re.search(r"^\s+sdk:\s*flutter", root.text("pubspec.yaml"), re.MULTILINE) else "dart"
    return Ecosystem(tool, (f"{tool} pub get",), (f"{tool} test",), (f"{tool} analyze",))


def _cmake(root: Root) -> Ecosystem | None:
    if not root.has("CMakeLists.txt"):
        return None
    build = ("cmake -S . -B build", "cmake --build build")
    return Ecosystem("cmake", build[:1], (f"{build[1]} && ctest --test-dir build --output-on-failure",))


def from_targets(root: Root) -> Ecosystem | None:
    """What a Makefile, justfile or Taskfile offers under the usual names."""
    for tool, targets in _runners(root):
        roles = [
            [name for name in role if name in targets][:1]
            for role in (SETUP_TARGETS, TEST_TARGETS, LINT_TARGETS)
        ]
        if any(roles):
            setup, test, lint = ([f"{tool} {name}" for name in role] for role in roles)
            return Ecosystem(tool, tuple(setup), tuple(test), tuple(lint))
    return None


def _runners(root: Root) -> Iterator[tuple[str, set[str]]]:
    make = root.text("GNUmakefile") or root.text("makefile") or root.text("Makefile")
    yield "make", set(re.findall(r"^([A-Za-z0-9_-]+)[ \t]*:(?!=)", make, re.MULTILINE))
    just = root.text("justfile") or root.text("Justfile") or root.text(".justfile")
    yield "just", set(re.findall(r"^@?([A-Za-z0-9_-]+)(?:[ \t][^:\n]*)?:(?!=)", just, re.MULTILINE))
    task = root.text("Taskfile.yml") or root.text("Taskfile.yaml")
    yield "task", set(re.findall(r"^  ([A-Za-z0-9_-]+):", task, re.MULTILINE))


ECOSYSTEMS: tuple[Callable[[Root], Ecosystem | None], ...] = (
    *(python_project, _node, _deno, _go, _rust, _java, _ruby),
    *(_php, _dotnet, _elixir, _swift, _dart, _cmake),
)
