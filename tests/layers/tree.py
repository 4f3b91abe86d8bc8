"""Reading our own source tree, for the tests of its laws."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

__all__ = ["PACKAGE", "ROOT", "functions", "modules", "parse", "tracked"]

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "proctor"


def modules(top: Path) -> list[Path]:
    """All Python files below a directory."""
    return sorted(path for path in top.rglob("*.py") if "__pycache__" not in path.parts)


@cache
def parse(path: Path) -> ast.Module:
    """A file's syntax tree."""
    return ast.parse(path.read_text(), filename=str(path))


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions of a file, nested ones too."""
    return [n for n in ast.walk(parse(path)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


@cache
def tracked() -> tuple[Path, ...]:
    """Files of the checkout that git tracks or would; the whole tree in an unpacked sdist without git."""
    import subprocess

    listing = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, timeout=30
    )
    if listing.returncode == 0:
        names = [name for name in listing.stdout.decode().split("\0") if name]
        return tuple(path for path in (ROOT / name for name in names) if path.is_file())
    skip = {".venv", ".dev", ".git", "__pycache__", ".hypothesis", ".pytest_cache"}
    return tuple(p for p in ROOT.rglob("*") if p.is_file() and not skip & set(p.relative_to(ROOT).parts))
