"""Seed 000's and 001's `file_operations`: files, backups and restores, every one of them a call through the gate.

Paths lie in the workspace the process stands in, as for the commands. A missing file is a `FileNotFoundError`, what the
policy does not allow a `PermissionError`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from proctor.compat.desk import MissingError, NotAllowedError, call_tool, output_of, pass_gate, workspace_here
from proctor.compat.house import House, users_house
from proctor.config import find_workspace

__all__ = ["FileOperations", "create_backup", "list_directory", "read_file", "restore_backup", "write_file"]


class FileOperations:
    """The functions over one state, and one workspace where it is named."""

    def __init__(self, house: House | None = None, workspace: Path | None = None) -> None:
        self._house = house
        self._workspace = workspace

    @property
    def house(self) -> House:
        """Where the calls go."""
        return self._house or users_house()

    def read_file(self, path: str | Path) -> str:
        """The text of a file; `[BINARY FILE: …]` for what is none. One too long to be read whole is refused."""
        made = pass_gate(self.house, "read_file", {"path": str(path)}, workspace=self._workspace)
        found = output_of(self.house.line.run(made), f"File not found: {path}")
        if found["truncated"]:
            raise NotAllowedError(
                message=f"{path} has {found['size_bytes']} bytes and would be cut. Read it in parts with a command."
            )
        return str(found["content"])

    def write_file(self, path: str | Path, content: str) -> bool:
        """Write the whole file and the directories it needs; True once it is there."""
        self._call("write_file", path=str(path), content=content)
        return True

    def list_directory(
        self, path: str | Path = ".", recursive: bool = True, max_depth: int = 5
    ) -> list[dict[str, Any]]:
        """What lies there: path, type, modified and, for files, size; links are named, never followed."""
        given = {"path": str(path), "recursive": recursive, "max_depth": max_depth}
        files = self._call("list_directory", **given)["files"]
        names = ("path", "type", "modified", "size", "target", "problem")
        return [{name: one[name] for name in names if name in one} for one in files]

    def create_backup(self, workspace_path: str | Path) -> str:
        """Save a whole workspace; gives `<base>/<workspace>_<YYYYMMDD_HHMMSS>`."""
        place = self._place(workspace_path)
        return str(self._of_place("create_backup", place)["backup_path"])

    def restore_backup(self, backup_path: str | Path, workspace_path: str | Path) -> bool:
        """Make a workspace exactly what its backup holds, all or nothing; the present state is saved first."""
        self._of_place("restore_backup", self._place(workspace_path), backup_path=str(backup_path))
        return True

    def _call(self, tool: str, **inputs: Any) -> dict[str, Any]:
        return call_tool(self.house, tool, inputs, workspace=self._workspace)

    def _of_place(self, tool: str, place: Path, **inputs: Any) -> dict[str, Any]:
        given = {**inputs, "workspace_path": str(place)}
        return call_tool(self.house, tool, given, workspace=find_workspace(place) or place)

    def _place(self, given: str | Path) -> Path:
        place = ((self._workspace or workspace_here()) / given).resolve()
        if not place.is_dir():
            raise MissingError(message=f"Workspace not found: {given}")
        return place


_here = FileOperations()
read_file = _here.read_file
write_file = _here.write_file
list_directory = _here.list_directory
create_backup = _here.create_backup
restore_backup = _here.restore_backup
