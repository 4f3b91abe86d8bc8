"""Lists a git work tree: git says what is tracked and what is ignored, the directories say what is there.

One look at each directory replaces one at each file: a tracked path that is not there is left out, and only
names that git does not track are asked about. Nothing of a hostile repository runs: no hook, no fsmonitor.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from proctor.config import environment
from proctor.workspace.descent import Descent
from proctor.workspace.git import QUIET

__all__ = ["Tracked", "list_tracked"]

ASK_NAMES = 400  # so many unknown names are asked about by name; for more, git looks at the whole tree
ASK_BYTES = 30_000  # fits a pipe both ways, so that neither side waits for the other
PIPE_BYTES = 1 << 20
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ of Linux; fcntl names it only in some builds
_OTHERS = ("ls-files", "-z", "-o", "--exclude-standard")


@dataclass
class Tracked:
    """Paths in no order; `nested` are the repositories inside, whose files are to be listed by their own rules."""

    paths: list[str]
    nested: list[str]
    cut: bool
    folders: set[str] = field(default_factory=set)
    unreadable: list[str] = field(default_factory=list)


def list_tracked(place: Path, cap: int, seconds: float) -> Tracked | None:
    """List the files that git tracks or would track; None when git does not answer."""
    return _GitListing(place, cap, time.monotonic() + seconds).run()


class _GitListing:
    """One listing of one work tree, with one deadline for all that is asked."""

    def __init__(self, place: Path, cap: int, deadline: float) -> None:
        self._place = place
        self._cap = cap
        self._deadline = deadline
        self._cut = False

    def run(self) -> Tracked | None:
        tracked = self._ask("ls-files", "-z", "-c")
        if tracked is None:
            return None
        if not tracked:  # nothing was added yet: what is there is git's to say, and nothing can be missing
            return self._sorted_out([], self._ask(*_OTHERS), [])
        look, descent = _Look(tracked), Descent(str(self._place))
        too_many = self._cut  # of tracked names alone
        with _Doubt(self._place) as doubt:
            descent.run(lambda handle, prefix: self._visit(look, doubt, handle, prefix), self._in_time)
            modules = self._modules(look.solid)
            doubt.add([*descent.refused, *(path for path in look.solid if path not in modules)])
            others = [] if too_many else self._others(doubt)
        listing = self._sorted_out(look.there, others, descent.folders)
        if listing is not None:
            listing.nested += modules
            listing.unreadable += descent.unreadable
        return listing

    def _visit(self, look: _Look, doubt: _Doubt, handle: int, prefix: str) -> Sequence[str]:
        unknown, below = look.visit(handle, prefix)
        if unknown:
            doubt.add(unknown)
        return below

    def _in_time(self) -> bool:
        late = time.monotonic() > self._deadline
        self._cut = self._cut or late
        return not late

    def _sorted_out(
        self, there: list[str], others: list[str] | None, folders: Sequence[str]
    ) -> Tracked | None:
        """Set the repositories inside apart, which git names with a slash at the end."""
        if others is None:
            return None
        nested = [path.rstrip("/") for path in others if path.endswith("/")]
        files = [path for path in others if not path.endswith("/")] if nested else others
        looked = {path.rpartition("/")[0] for path in files}
        looked.update(folders)
        return Tracked(there + files, nested, self._cut, looked)

    def _others(self, doubt: _Doubt) -> list[str] | None:
        """Tell which of the names that git does not track it would track, with all that is below them."""
        if doubt.too_much:
            return self._ask(*_OTHERS)
        left = doubt.resolve(self._deadline)
        if not left:
            return left
        folders = [path for path in left if _is_folder(f"{self._place}/{path}")]
        files = sorted(set(left).difference(folders))
        below = self._ask(*_OTHERS, "--", *folders) if folders else []
        return None if below is None else files + below

    def _modules(self, solid: Sequence[str]) -> list[str]:
        """Submodules among the directories that stand where the index has a name; the others replaced a file."""
        if not solid:
            return []
        rows = self._ask("ls-files", "-z", "-s", "--", *solid[:ASK_NAMES]) or []
        return [path for kind, _, path in (row.partition("\t") for row in rows) if kind.startswith("160000 ")]

    def _ask(self, *words: str) -> list[str] | None:
        """Ask git for names, up to the cap and within the time; None when it failed."""
        process = _start(self._place, words)
        if process is None:
            return None
        data, cut = _read(process, self._cap, self._deadline)
        self._cut = self._cut or cut
        return None if process.returncode and not cut else os.fsdecode(data).split("\0")[:-1]


class _Look:
    """Compares what git tracks with what the directories hold, one directory at a time.

    In the order of paths all that is tracked below a directory stands in one slice, so no table of every
    path is needed, and a directory without others inside is right when it holds exactly its slice.
    """

    def __init__(self, tracked: list[str]) -> None:
        self._tracked = sorted(tracked)
        self._links_count: bool | None = None
        self.there: list[str] = []
        self.solid: list[str] = []

    def visit(self, handle: int, prefix: str) -> tuple[list[str], list[str]]:
        """Give the paths in one directory that are not tracked, and the names below which something is."""
        names, folders = self._names(handle)
        paths = {prefix + name for name in names} if prefix else set(names)
        first, last = self._slice(prefix)
        if not folders and last - first == len(paths) and paths.issuperset(self._tracked[first:last]):
            self.there += self._tracked[first:last]
            return [], []
        files, below = self._children(prefix, first, last)
        inside = {prefix + name for name in folders}
        self.there += [path for path in files if path in paths and path not in inside]
        self.solid += [path for path in files if path in inside]
        unknown = paths.difference(files, (prefix + name for name in below & folders))
        return sorted(unknown), sorted(below & folders)

    def _names(self, handle: int) -> tuple[list[str], set[str]]:
        """Read a directory: its names, and which are directories.

        Where a directory has a link for each one inside, two links mean none; only a file system seen to
        count like that is believed, for the types cost a quarter of the listing.
        """
        links = os.fstat(handle).st_nlink
        if self._links_count and links == 2:
            return os.listdir(handle), set()
        with os.scandir(handle) as listing:
            items = list(listing)
            folders = {item.name for item in items if item.is_dir(follow_symlinks=False)}
        if folders:
            self._links_count = self._links_count is not False and links == len(folders) + 2
        return [item.name for item in items], folders

    def _slice(self, prefix: str) -> tuple[int, int]:
        if not prefix:
            return 0, len(self._tracked)
        first = bisect_left(self._tracked, prefix)
        return first, bisect_left(self._tracked, prefix[:-1] + "0", first)  # "0" comes right after "/"

    def _children(self, prefix: str, at: int, last: int) -> tuple[list[str], set[str]]:
        """Give the tracked paths right in a directory, and the names below which there are more."""
        files: list[str] = []
        below: set[str] = set()
        while at < last:
            path = self._tracked[at]
            name, slash, _ = path[len(prefix) :].partition("/")
            if slash:
                below.add(name)
                at = bisect_left(self._tracked, f"{prefix}{name}0", at, last)
            else:
                if not files or files[-1] != path:  # in a merge conflict a path is named once per side
                    files.append(path)
                at += 1
        return files, below


class _Doubt:
    """Names that git does not track: it says which of them it ignores while the directories are still read."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._asked: list[str] = []
        self._bytes = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.too_much = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            with self._process:
                pass

    def add(self, paths: Sequence[str]) -> None:
        """Ask about some paths."""
        wanted = [path for path in paths if path.rpartition("/")[2] != ".git"]
        # With a dot and a slash before it no name reads as a pathspec with magic.
        text = os.fsencode("".join(f"./{path}\0" for path in wanted))
        self._bytes += len(text)
        self._asked += wanted
        self.too_much = self.too_much or self._bytes > ASK_BYTES or len(self._asked) > ASK_NAMES
        if wanted and not self.too_much:
            self._write(text)

    def _write(self, text: bytes) -> None:
        if self._process is None:
            self._process = _start(
                self._place, ("check-ignore", "-z", "--no-index", "--stdin"), stdin=subprocess.PIPE
            )
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it died: its exit code tells
                os.write(self._process.stdin.fileno(), text)

    def resolve(self, deadline: float) -> list[str] | None:
        """Give the paths that are not ignored; None when git failed."""
        if not self._asked:
            return []
        if self._process is None or self._process.stdin is None:
            return None
        self._process.stdin.close()
        data, _cut = _read(self._process, ASK_NAMES, deadline)
        if self._process.returncode not in {0, 1}:  # 1: none of them
            return None
        ignored = {name[2:] for name in os.fsdecode(data).split("\0")}
        return [path for path in self._asked if path not in ignored]


def _start(
    place: Path, words: Sequence[str], stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes] | None:
    """Start git with hooks and fsmonitor off: a repository may be hostile."""
    options = [word for name, value in QUIET for word in ("-c", f"{name}={value}")]
    own = {name: value for name, value in environment().items() if not name.startswith("GIT_")}
    quiet = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    if words[0] == "ls-files":
        quiet["GIT_LITERAL_PATHSPECS"] = "1"
    try:
        process = subprocess.Popen(
            ["git", "-C", str(place), *options, *words],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**own, **quiet},
            bufsize=0,
        )
    except OSError:
        return None
    with contextlib.suppress(OSError):  # fewer turns with git, where the system allows it
        fcntl.fcntl(_output(process), _SET_PIPE_SIZE, PIPE_BYTES)
    return process


def _output(process: subprocess.Popen[bytes]) -> int:
    if process.stdout is None:
        raise RuntimeError("it was started with a pipe")
    return process.stdout.fileno()


def _read(process: subprocess.Popen[bytes], cap: int, deadline: float) -> tuple[bytes, bool]:
    """Read NUL-separated names to the end, up to the cap and until the deadline; then it is killed."""
    parts: list[bytes] = []
    count = 0
    poll = select.poll()
    poll.register(_output(process), select.POLLIN)
    with process:
        while count <= cap and poll.poll(max(0.0, deadline - time.monotonic()) * 1_000):
            part = os.read(_output(process), PIPE_BYTES)
            if not part:
                return b"".join(parts), not _ended(process, deadline)
            parts.append(part)
            count += part.count(b"\0")
        process.kill()
    return b"".join(parts), True


def _ended(process: subprocess.Popen[bytes], deadline: float) -> bool:
    """Whether it ended in time; what only closed its output is killed."""
    try:
        process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        return False
    return True


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)  # noqa: PTH112, PTH114 - names may be odd bytes
