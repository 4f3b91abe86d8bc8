"""What is to be judged: a commit, a range, a branch, or work that is not committed, as two trees and the change between.

Invariant: everything later works on these trees alone; nothing looks at the user's checkout again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from proctor.proof.change import Change, ChangedFile
from proctor.proof.diff import Diff, parse_diff
from proctor.proof.kinds import FileKind, Kind, file_kind, language_of, only_comments
from proctor.protocol.errors import UsageError
from proctor.workspace.trees import Trees

__all__ = [
    "Parts",
    "Subject",
    "as_text",
    "change_between",
    "find_subject",
    "judges_in",
    "other_code",
    "parts_of",
]

MAX_FILES: Final = 400
MAX_TEXT: Final = 1 << 20
_HELPERS: Final = ("conftest.py",)


@dataclass(frozen=True, slots=True)
class Subject:
    """Two trees with the commits their git shows; `base` is empty for the first commit of a history."""

    label: str
    base: str
    base_tree: str
    head: str
    tree: str
    message: str = ""
    committed: bool = True

    @property
    def base_head(self) -> str:
        """The commit the leg before shows; a first commit has nothing before it but itself."""
        return self.base or self.head


def find_subject(
    trees: Trees, ref: str | None = None, *, base: str | None = None, base_branch: str | None = None,
    staged: bool = False, uncommitted: bool = False,
) -> Subject:  # fmt: skip
    """Find what was meant; without a word it is work that is not committed, else the branch against its base."""
    if ref is not None and (staged or uncommitted):
        raise UsageError(message="Name a revision, or --staged, or --uncommitted; not both.")
    if not trees.has_commits():
        raise UsageError(
            message="This repository has no commit yet, so there is nothing to compare with. Commit first."
        )
    if ref is None and not staged and not uncommitted:
        uncommitted = trees.uncommitted() != trees.tree("HEAD")
    if staged or uncommitted:
        return _worked(trees, base, staged=staged)
    ref = ref or "HEAD"
    if ".." in ref:
        first, _, last = ref.replace("...", "..").partition("..")
        base, ref = base or first or "HEAD", last or "HEAD"
    head = trees.commit(ref)
    start = trees.commit(base) if base else _parting(trees, head, base_branch)
    base_tree = trees.tree(start) if start else trees.empty()
    return Subject(ref, start or "", base_tree, head, trees.tree(head), _messages(trees, start, head))


def _worked(trees: Trees, base: str | None, *, staged: bool) -> Subject:
    head = trees.commit("HEAD")
    start = trees.commit(base) if base else head
    left_out = [] if staged else trees.installed()
    label = (
        "staged work" if staged else " without ".join(filter(None, ["uncommitted work", ", ".join(left_out)]))
    )
    return Subject(label, start, trees.tree(start), head, trees.uncommitted(staged=staged), committed=False)


def _parting(trees: Trees, head: str, base_branch: str | None) -> str | None:
    """Where a branch left its base; on the base itself the commit before; None for the very first commit."""
    for name in filter(None, (base_branch, f"origin/{base_branch}" if base_branch else None)):
        found = trees.git.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        if found.returncode == 0:
            parted = trees.merge_base(found.stdout.strip(), head)
            if parted is not None and parted != head:
                return parted
    before = trees.git.run("rev-parse", "--verify", "--quiet", f"{head}~1^{{commit}}")
    return before.stdout.strip() if before.returncode == 0 else None


def _messages(trees: Trees, start: str | None, head: str) -> str:
    scope = [f"{start}..{head}"] if start else [head]
    return trees.git("log", "--format=%B", "--max-count=1", *scope, "--")[:10_000]


def change_between(trees: Trees, old: str, new: str) -> Change:
    """The change as the static checks want it; what is binary, too long or too much is listed as unread."""
    diff = parse_diff(trees.diff(old, new))
    plain = [file for file in diff.files if not file.binary][:MAX_FILES]
    before = _texts(trees, old, [file.old_path for file in plain])
    after = _texts(trees, new, [file.new_path for file in plain])
    files = [
        ChangedFile(file.path, before.get(file.old_path or ""), after.get(file.new_path or ""))
        for file in plain
        if _known(file.old_path, before) and _known(file.new_path, after)
    ]
    read = {file.path for file in files}
    return Change(tuple(files), diff, tuple(file.path for file in diff.files if file.path not in read))


def _texts(trees: Trees, tree: str, paths: Sequence[str | None]) -> dict[str, str]:
    found = trees.blobs(tree, [path for path in paths if path], cap=MAX_TEXT)
    return {path: as_text(data) for path, data in found.items()}


def as_text(data: bytes) -> str:
    """The text of a file; line ends unified, bytes that are no UTF-8 kept."""
    return data.decode("utf-8", "surrogateescape").replace("\r\n", "\n")


def _known(path: str | None, texts: dict[str, str]) -> bool:
    return path is None or path in texts


@dataclass(frozen=True, slots=True)
class Parts:
    """The changed paths by what they do in a proof."""

    tests: tuple[str, ...]
    source: tuple[str, ...]
    rest: tuple[str, ...]

    def without(self, judges: Sequence[str], *, tests: Sequence[str]) -> Parts:
        """The same without files that judge the change; new ones travel to the base as tests do."""
        source = tuple(path for path in self.source if path not in judges)
        rest = tuple(path for path in self.rest if path not in judges)
        return Parts((*self.tests, *tests), source, rest)


def parts_of(diff: Diff) -> Parts:
    """Part the paths: tests travel to the base, source is what is judged, the rest goes with neither.

    Where no source was changed, settings and checks are what the change is about.
    """
    paths = sorted({path for file in diff.files for path in (file.old_path, file.new_path) if path})
    kinds = {path: _part(path) for path in paths}
    tests = tuple(path for path in paths if kinds[path] is FileKind.TEST)
    source = tuple(p for p in paths if kinds[p] in {FileKind.SOURCE, FileKind.UI, FileKind.OTHER})
    if not source:
        source = tuple(path for path in paths if kinds[path] in {FileKind.CONFIG, FileKind.CHECK})
    rest = tuple(path for path in paths if path not in {*tests, *source})
    return Parts(tests, source, rest)


def other_code(diff: Diff, kind: Kind) -> list[str]:
    """Changed code that does not belong into a change of documents, or of pages and pictures."""
    code = [file for file in diff.files if file_kind(file.path) in {FileKind.SOURCE, FileKind.OTHER}]
    if kind is Kind.UI:
        return [file.path for file in code if language_of(file.path) not in {None, "javascript"}]
    return [file.path for file in code if not only_comments(file) and language_of(file.path)]


def _part(path: str) -> FileKind:
    return FileKind.TEST if path.rsplit("/", 1)[-1] in _HELPERS else file_kind(path)


_JUDGES: Final = re.compile(
    r"(?:^|/)(?:[^/]+\.(?:sh|bash|zsh|mk)|(?:GNU)?[Mm]akefile|justfile|[^/]*(?:verify|check|valid)[^/]*)$"
)


def judges_in(commands: Sequence[str], paths: Sequence[str]) -> tuple[str, ...]:
    """Changed files that the commands themselves run as judges: scripts and makefiles they name, not the code they try.

    A change must not bring its own judge: the base's version decides.
    """
    words = {
        word.strip("\"'").removeprefix("./") for line in commands for word in re.split(r"[\s;&|()=]+", line)
    }
    if any(word == "make" or word.endswith("/make") for word in words):
        words |= {"Makefile", "makefile", "GNUmakefile"}
    named = [path for path in paths if path in words or any(word.endswith(f"/{path}") for word in words)]
    return tuple(path for path in named if _JUDGES.search(path) and file_kind(path) is not FileKind.TEST)
