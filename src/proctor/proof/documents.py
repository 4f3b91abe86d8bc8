"""Documents and settings that can be checked without a command: links that lead somewhere, files that can be read.

Only what the change made worse counts; a link that was broken before is not this change's doing.
"""

from __future__ import annotations

import json
import posixpath
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from proctor.workspace.trees import Trees

__all__ = ["Checked", "check_documents"]

_LINK: Final = re.compile(r"!?\[[^\]\n]{0,500}\]\(\s*<?([^)\s>]{1,2000})>?(?:\s+[\"'][^)\n]{0,500})?\)")
_CODE: Final = re.compile(r"```.*?```|~~~.*?~~~|`[^`\n]*`", re.DOTALL)
_LOOSE: Final = re.compile(
    r"(?:^|/)(?:[tj]sconfig[^/]*\.json|\.vscode/.*|\.devcontainer/.*|\.eslintrc\.json)$"
)
_PAGES: Final = (".md", ".mdx", ".markdown")


@dataclass(frozen=True, slots=True)
class Checked:
    """How much was looked at, and what is wrong now that was not before."""

    links: int = 0
    files: int = 0
    problems: tuple[str, ...] = ()

    @property
    def anything(self) -> bool:
        """Whether there was something to check."""
        return bool(self.links or self.files)


def check_documents(trees: Trees, base: str, tree: str, paths: Sequence[str]) -> Checked:
    """Look at the changed documents and settings of a tree."""
    names = set(trees.names(tree))
    links, files = 0, 0
    problems: list[str] = []
    for path in paths:
        data = trees.blob(tree, path)
        if data is None:
            continue
        if path.endswith(_PAGES):
            found, broken = _links(path, data, names)
            links += found
            before = trees.blob(base, path)
            known = (
                _links(path, before, set(trees.names(base)))[1] if broken and before is not None else set()
            )
            problems += [f"{path}: the link to {target} leads nowhere" for target in sorted(broken - known)]
        elif path.endswith((".json", ".toml")) and not _LOOSE.search(path):
            files += 1
            if problem := _unreadable(path, data):
                problems.append(f"{path}: {problem}")
    return Checked(links, files, tuple(problems))


def _links(path: str, data: bytes, names: set[str]) -> tuple[int, set[str]]:
    """How many links lead into the repository, and which of them lead nowhere."""
    text = _CODE.sub("", data.decode("utf-8", "replace"))
    count, broken = 0, set()
    folders = {posixpath.dirname(name) for name in names}
    for target in _LINK.findall(text):
        plain = unquote(target.split("#")[0].split("?")[0])
        if not plain or re.match(r"[a-zA-Z][\w+.-]*:|/|\{|<", plain):
            continue
        count += 1
        place = posixpath.normpath(posixpath.join(posixpath.dirname(path), plain))
        known = place in names or any(folder == place or folder.startswith(f"{place}/") for folder in folders)
        if not place.startswith("..") and not known:
            broken.add(target)
    return count, broken


def _unreadable(path: str, data: bytes) -> str:
    try:
        if path.endswith(".json"):
            json.loads(data)
        else:
            tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        return f"cannot be read: {str(error)[:200]}"
    return ""
