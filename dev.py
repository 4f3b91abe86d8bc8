#!/usr/bin/env python3
"""Set up, show, test and check Proctor from a fresh checkout; needs only Python 3.11+, pip and git.

Everything it makes lies in `.venv/` and `.dev/` (both ignored by git); nothing of the user's is touched.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
WORK = ROOT / ".dev"
REQUIREMENTS = ROOT / "requirements.txt"
UV_VERSION = "0.13.7"
# --quick runs the ground only (words, settings, store, trace, commands) on SQLite, without long waits; give a directory to
# run another room. --soak adds the long fault runs.
QUICK = "not slow and not agents and not soak"
QUICK_NAMES = "not postgresql"
QUICK_IGNORES = [
    "agents",
    "compat",
    "conformance",
    "e2e",
    "engine",
    "faults",
    "gate",
    "hollow",
    "integration",
    "layers",
    "proof",
    "sandbox",
    "server",
    "tools",
    "workspace",
]
FULL = "not soak"


def main() -> int:
    """Parse the command line, make the environment ready and run the command."""
    if sys.version_info < (3, 11):  # noqa: UP036 - this file must say so itself on an older Python
        sys.exit("Proctor needs Python 3.11 or newer; run `python3.11 dev.py …`.")
    args, rest = parser().parse_known_args()
    if args.command not in {"test", "bench", "demo"} and rest:
        parser().error(f"unrecognized arguments: {' '.join(rest)}")
    if args.command == "lock":
        return lock()
    try:
        setup()
    except subprocess.CalledProcessError as error:
        sys.exit(
            f"dev.py: setting up failed in `{Path(error.cmd[0]).name} …`; what it said is above. pip and uv must reach a"
            " package index: PIP_INDEX_URL and UV_DEFAULT_INDEX name another one."
        )
    commands = {
        "setup": ready,
        "demo": demo,
        "test": test,
        "check": check,
        "fmt": fmt,
        "bench": bench,
        "docs": docs,
    }
    return commands[args.command](args, rest)


def parser() -> argparse.ArgumentParser:
    """Describe the commands."""
    top = argparse.ArgumentParser(prog="dev.py", description=__doc__)
    sub = top.add_subparsers(dest="command", required=True)
    sub.add_parser("setup", help="make .venv/ (the others do it by themselves)")
    sub.add_parser("demo", help="run the main job on the embedded default; --json ends with a summary line")
    tests = sub.add_parser("test", help="run every test; further arguments go to pytest")
    tests.add_argument("--quick", action="store_true", help="under a minute: no CLI agents, no slow tests")
    tests.add_argument("--soak", action="store_true", help="also the long fault-injection runs")
    sub.add_parser("check", help="lint, types, layers, docs")
    sub.add_parser("fmt", help="format the code and mend what can be mended")
    sub.add_parser("bench", help="measure, as JSON; names choose benchmarks")
    sub.add_parser("docs", help="write the generated pages of docs/reference anew")
    sub.add_parser("lock", help="pin requirements.txt anew from pyproject.toml")
    return top


def setup() -> None:
    """Make `.venv/` match requirements.txt; quick when it already does; safe beside a second caller."""
    WORK.mkdir(exist_ok=True)
    with (WORK / "lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        stamp, wanted = VENV / ".proctor-stamp", fingerprint()
        if stamp.exists() and stamp.read_text() == wanted:
            return
        print("dev.py: setting up .venv/ …", file=sys.stderr, flush=True)
        python = VENV / "bin" / "python"
        uv("venv", "--quiet", "--clear", "--python", sys.executable, str(VENV))
        uv("pip", "install", "--quiet", "--python", str(python), "--require-hashes", "-r", str(REQUIREMENTS))
        uv(
            "pip",
            "install",
            "--quiet",
            "--python",
            str(python),
            "--no-deps",
            "--no-build-isolation",
            "-e",
            str(ROOT),
        )
        stamp.write_text(wanted)


def fingerprint() -> str:
    """Tell whether the environment still fits: pins, package metadata, interpreter and place."""
    parts = [
        REQUIREMENTS.read_bytes(),
        (ROOT / "pyproject.toml").read_bytes(),
        sys.version.encode(),
        bytes(ROOT),
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def uv(*argv: str) -> None:
    """Run uv, fetched once into .dev/ so that the user's own environment stays as it is."""
    home = WORK / f"uv-{UV_VERSION}"
    if not (home / "bin" / "uv").exists():
        fetch = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*fetch, "--target", str(home), f"uv=={UV_VERSION}"], check=True)
    environment = {
        **os.environ,
        "UV_SYSTEM_CERTS": "1",
        "UV_CACHE_DIR": str(WORK / "uv-cache"),
        "UV_LINK_MODE": "copy",
    }
    environment.pop("VIRTUAL_ENV", None)
    subprocess.run([str(home / "bin" / "uv"), "--no-config", *argv], check=True, env=environment, cwd=ROOT)


def lock() -> int:
    """Resolve all dependencies for every platform, with hashes and without any host's name."""
    WORK.mkdir(exist_ok=True)
    options = "--universal --python-version 3.11 --generate-hashes --all-extras --group dev"
    options += " --no-annotate --no-header"
    uv(
        "pip",
        "compile",
        "--quiet",
        *options.split(),
        "--no-emit-index-url",
        "pyproject.toml",
        "-o",
        str(REQUIREMENTS),
    )
    return 0


def run(*argv: str) -> int:
    """Run one program of the environment from the root of the checkout and give its exit code."""
    path = f"{VENV / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environment = {**os.environ, "PATH": path}
    # Tests start hundreds of Pythons: each would compile all it imports anew, which takes three times as long.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run(
        [str(VENV / "bin" / argv[0]), *argv[1:]], cwd=ROOT, env=environment, check=False
    ).returncode


def ready(_args: argparse.Namespace, _rest: list[str]) -> int:
    """Say where the command is."""
    print(VENV / "bin" / "proctor")
    return 0


def demo(_args: argparse.Namespace, rest: list[str]) -> int:
    """Run the demonstration."""
    return run("proctor", "demo", *rest)


def system_packages(*, quick: bool) -> None:
    """Get Debian's bubblewrap and Chromium where we are root, so that the real parts are tested too.

    Elsewhere the tests that need them are listed at the end with their cure. The quick run opens no browser.
    """
    wanted = {"bubblewrap": "bwrap"} if quick else {"bubblewrap": "bwrap", "chromium": "chromium"}
    missing = [package for package, program in wanted.items() if not shutil.which(program)]
    if not missing or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    print(f"dev.py: installing Debian's {' and '.join(missing)} for the tests …", file=sys.stderr, flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
        command = ["apt-get", "-q", *words]
        subprocess.run(command, env=environment, capture_output=True, timeout=600, check=False)


def test(args: argparse.Namespace, rest: list[str]) -> int:
    """Run the tests on SQLite and PostgreSQL, in one process more than there are cores: many only wait."""
    system_packages(quick=args.quick)
    marks = QUICK if args.quick else "" if args.soak else FULL
    chosen = any(Path(word.split("::")[0]).exists() for word in rest)
    parallel = (
        []
        if any(word.startswith("-n") or word == "--pdb" for word in rest)
        else ["-n", str((os.cpu_count() or 1) + 1)]
    )
    where = [] if chosen else ["tests"]
    if args.quick and not chosen:
        where += ["-k", QUICK_NAMES, *(f"--ignore=tests/{name}" for name in QUICK_IGNORES)]
    return run(
        "python",
        "-m",
        "pytest",
        *(["-m", marks] if marks else []),
        *parallel,
        "--dist",
        "worksteal",
        *where,
        *rest,
    )


def check(_args: argparse.Namespace, _rest: list[str]) -> int:
    """Lint, types, layers, docs; every one runs, and any failure fails the whole."""
    steps = [
        ("ruff", "check", "."),
        ("ruff", "format", "--check", "."),
        ("mypy",),
        ("lint-imports", "--cache-dir", str(WORK / "import-linter")),
        ("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/layers"),
    ]
    failed = [" ".join(step) for step in steps if announce(step)]
    print(f"dev.py check: {'failed: ' + '; '.join(failed) if failed else 'all good'}")
    return 1 if failed else 0


def announce(step: tuple[str, ...]) -> int:
    """Run one step of the check under its name."""
    print(f"\n── {' '.join(step)}", flush=True)
    return run(*step)


def fmt(_args: argparse.Namespace, _rest: list[str]) -> int:
    """Mend imports and lint where it is safe, then format."""
    return run("ruff", "check", "--fix", "--quiet", ".") | run("ruff", "format", ".")


def bench(_args: argparse.Namespace, rest: list[str]) -> int:
    """Run the benchmarks and print JSON."""
    return run("python", "-m", "bench", *rest)


def docs(_args: argparse.Namespace, _rest: list[str]) -> int:
    """Write the generated reference pages."""
    return run("python", "-m", "proctor.cli.reference", "docs/reference")


if __name__ == "__main__":
    sys.exit(main())
