"""Seed 000's `file_operations` under its own name; everything is `proctor.compat.file_operations`."""

from __future__ import annotations

from proctor.compat.file_operations import (
    create_backup,
    list_directory,
    read_file,
    restore_backup,
    write_file,
)

__all__ = ["create_backup", "list_directory", "read_file", "restore_backup", "write_file"]
