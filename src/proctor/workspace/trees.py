"""Trees of one repository, and new ones made from them: overlays, edits, work that is not committed.

Whatever is made here goes to an object store of ours that borrows from the repository's: nothing is written into
the user's repository, and the user's index is only copied. Blocking; async callers use a thread.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from proctor.workspace.git import Git, GitError
from proctor.workspace.worktree import NoCommitError, NotARepositoryError

__all__ = ["Changed", "Trees"]

_VENVS = frozenset({".venv", "venv"})
# A fixed moment: the same tree is the same commit.
_WHO = {"NAME": "Proctor", "EMAIL": "proctor@localhost", "DATE": "2000-01-01T00:00:00Z"}


@dataclass(frozen=True, slots=True)
class Changed:
    """One path that differs between two trees."""

    path: str
    status: str  # A, M, D, T
    old_mode: str
    new_mode: str


class Trees:
    """What git knows of one repository, and what can be made of it without touching it."""

    def __init__(self, place: Path, home: Path, *, shadow: bool = False) -> None:
        """Take a directory of a repository; `home` is where our objects and temporary indexes lie.

        `shadow` is for a directory that is no repository: git's part of it is made in `home`.
        """
        self.home = home
        self.shadow = shadow
        self.store = home / "objects"
        (self.store / "info").mkdir(parents=True, exist_ok=True)
        if shadow:
            self._be_shadow(place)
            return
        asked = ("--show-toplevel", "--git-path", "objects", "--git-path", "index")
        found = Git(place).run("rev-parse", "--path-format=absolute", *asked) if place.is_dir() else None
        if found is None or found.returncode != 0:
            raise NotARepositoryError(path=str(place))
        top, objects, index = found.stdout.rstrip("\n").split("\n")
        self.root = Path(top).resolve()
        self.git = Git(self.root)
        self.objects, self._index = Path(objects), Path(index)

    def _be_shadow(self, place: Path) -> None:
        directory = self.home / "shadow.git"
        if not (directory / "HEAD").is_file():
            Git(self.home)("init", "--quiet", "--bare", str(directory))
        self.root = place.resolve()
        self.git = Git(self.root, directory)
        self.objects = directory / "objects"
        self._index = directory / "no-index"

    def committed(self, tree: str) -> str:
        """A commit of a tree, without history; for a directory that has none."""
        who = {
            f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in _WHO.items()
        }
        return self.git("commit-tree", tree, "-m", "as it is", env={**self.env, **who})

    @property
    def env(self) -> dict[str, str]:
        """Where objects are read from and written to."""
        return {
            "GIT_OBJECT_DIRECTORY": str(self.store),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(self.objects),
        }

    def commit(self, rev: str) -> str:
        """The full id of a commit; an unknown one is an error that says so."""
        # A revision that begins with a dash would be an option.
        found = self.git.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{rev}^{{commit}}")
        if found.returncode != 0:
            raise NoCommitError(path=str(self.root), base=rev)
        return found.stdout.strip()

    def tree(self, rev: str) -> str:
        """The tree of a commit or of a tree of ours."""
        return self.git("rev-parse", "--verify", "--end-of-options", f"{rev}^{{tree}}", env=self.env)

    def empty(self) -> str:
        """The tree without files: what a repository's first commit is compared with."""
        return self.git("mktree", env=self.env)

    def merge_base(self, one: str, other: str) -> str | None:
        """Where two commits parted; None for histories that share nothing."""
        found = self.git.run("merge-base", one, other)
        return found.stdout.strip() or None if found.returncode == 0 else None

    def has_commits(self) -> bool:
        """Say whether there is anything to compare with."""
        return self.git.ok("rev-parse", "--verify", "--quiet", "HEAD^{commit}")

    def uncommitted(self, *, staged: bool = False) -> str:
        """The work as it is now as a tree: everything not ignored, or only what is staged."""
        with self._temporary_index() as env:
            index = Path(env["GIT_INDEX_FILE"])
            if self._index.exists():
                # With its time: git compares contents only of files that are not older than the index.
                shutil.copy2(self._index, index)
            if not staged:
                left_out = [f":(top,exclude,literal){name}" for name in self.installed()]
                self.git("add", "--all", *(["--", ":/", *left_out] if left_out else []), env=env)
            return self.git("write-tree", env=env)

    def installed(self) -> list[str]:
        """Untracked directories that were installed and not written, though nothing ignores them."""
        listed = self.git.raw("ls-files", "-z", "--others", "--directory", "--exclude-standard", env=self.env)
        names = [os.fsdecode(name).rstrip("/") for name in listed.split(b"\0") if name.endswith(b"/")]
        return [name for name in names if _is_installed(self.root / name)]

    def overlay(self, base: str, source: str, paths: Sequence[str]) -> str:
        """The base with some paths as they are in another tree; what is absent there is removed."""
        if not paths:
            return self.tree(base)
        entries = self._entries(source, paths)
        gone = f"0 {'0' * len(self.tree(base))}"
        lines = [f"{entries.get(path, gone)}\t{path}\0" for path in paths]
        return self._indexed(base, "".join(lines))

    def edited(self, tree: str, contents: Mapping[str, bytes]) -> str:
        """The tree with the contents of some existing files replaced."""
        entries = self._entries(tree, list(contents))
        lines = []
        for path, data in contents.items():
            blob = self.git.raw("hash-object", "-w", "--stdin", env=self.env, data=data).decode().strip()
            lines.append(f"{entries[path].split()[0]} {blob}\t{path}\0")
        return self._indexed(tree, "".join(lines))

    def _indexed(self, base: str, lines: str) -> str:
        with self._temporary_index() as env:
            self.git("read-tree", base, env=env)
            self.git("update-index", "--replace", "-z", "--index-info", env=env, text=lines)
            return self.git("write-tree", env=env)

    def _entries(self, tree: str, paths: Sequence[str]) -> dict[str, str]:
        """Mode and id of the paths that exist in a tree, as update-index wants them."""
        found: dict[str, str] = {}
        for start in range(0, len(paths), 500):
            words = ("ls-tree", "-z", "-r", tree, "--", *paths[start : start + 500])
            listed = self.git("--literal-pathspecs", *words, env=self.env)
            for row in filter(None, listed.split("\0")):
                facts, _, path = row.partition("\t")
                mode, _kind, blob = facts.split()
                found[path] = f"{mode} {blob}"
        return found

    def blob(self, tree: str, path: str, *, cap: int = 4 << 20) -> bytes | None:
        """A file's bytes in a tree; None when it is not there, is no file or is too long."""
        return self.blobs(tree, [path], cap=cap).get(path)

    def blobs(self, tree: str, paths: Sequence[str], *, cap: int = 4 << 20) -> dict[str, bytes]:
        """The bytes of many files with two processes; what is not there, is no file or is too long is left out."""
        wanted: dict[str, str] = {}
        for start in range(0, len(paths), 500):
            words = ("ls-tree", "-z", "-r", "-l", tree, "--", *paths[start : start + 500])
            for row in filter(None, self.git("--literal-pathspecs", *words, env=self.env).split("\0")):
                facts, _, path = row.partition("\t")
                mode, _kind, blob, size = facts.split()
                if mode.startswith("100") and int(size) <= cap:
                    wanted[path] = blob
        contents = self._contents(sorted(set(wanted.values())))
        return {path: contents[blob] for path, blob in wanted.items()}

    def _contents(self, blobs: Sequence[str]) -> dict[str, bytes]:
        if not blobs:
            return {}
        data = "".join(f"{blob}\n" for blob in blobs).encode()
        raw = self.git.raw("cat-file", "--batch", env=self.env, data=data)
        found: dict[str, bytes] = {}
        at = 0
        while at < len(raw):
            end = raw.index(b"\n", at)
            blob, _kind, size = raw[at:end].decode().split()
            found[blob] = raw[end + 1 : end + 1 + int(size)]
            at = end + 2 + int(size)
        return found

    def changed(self, old: str, new: str) -> list[Changed]:
        """Which paths differ, renames as removal and addition."""
        raw = self.git("diff-tree", "-r", "-z", "--no-renames", old, new, env=self.env)
        words = raw.split("\0")
        found = []
        for facts, path in zip(words[::2], words[1::2], strict=False):
            old_mode, new_mode, _old, _new, status = facts.lstrip(":").split()
            found.append(Changed(path, status[0], old_mode, new_mode))
        return found

    def names(self, tree: str) -> list[str]:
        """Every path of a tree."""
        listed = self.git("ls-tree", "-r", "-z", "--name-only", tree, env=self.env)
        return [name for name in listed.split("\0") if name]

    def diff(self, old: str, new: str, paths: Sequence[str] = ()) -> str:
        """The difference as a unified diff with git's headers; bytes that are no UTF-8 are kept."""
        words = ["--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--full-index", "-p"]
        limit = ["--", *paths] if paths else []
        raw = self.git.raw("--literal-pathspecs", "diff-tree", "-r", *words, old, new, *limit, env=self.env)
        return raw.decode("utf-8", "surrogateescape")

    def applied(self, tree: str, patch: str) -> str | None:
        """The tree with a patch applied to it; None when it does not fit."""
        with self._temporary_index() as env:
            self.git("read-tree", tree, env=env)
            data = patch.encode("utf-8", "surrogateescape")
            try:
                self.git.raw("apply", "--cached", "--whitespace=nowarn", "-", env=env, data=data)
            except GitError:
                return None
            return self.git("write-tree", env=env)

    @contextmanager
    def _temporary_index(self) -> Iterator[dict[str, str]]:
        with tempfile.TemporaryDirectory(prefix="index-", dir=self.home) as place:
            yield {**self.env, "GIT_INDEX_FILE": str(Path(place) / "index")}


def _is_installed(place: Path) -> bool:
    """A virtual environment or node_modules: what proofs borrow (proof.dependencies), never part of a change."""
    return place.name == "node_modules" or (place.name in _VENVS and (place / "pyvenv.cfg").is_file())


def _quoted(path: Path) -> str:
    """Colons part directories in this variable; git reads a quoted form for names that have one."""
    text = os.fspath(path)
    if ":" not in text and '"' not in text:
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
