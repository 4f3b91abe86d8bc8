"""A process that writes tasks and says each one's name only after its commit, for tests that break something.

`writer.py URL COUNT` writes; `writer.py URL list` prints the names that are there. Ends with the error's exit code.
"""

from __future__ import annotations

import sys
import uuid

import sqlalchemy as sa

from proctor.protocol.errors import ProctorError
from proctor.store.schema import open_database
from proctor.store.tables import task_queue

__all__ = ["main"]

ROW = "x" * 3000


def main(url: str, what: str) -> int:
    """Do it; an error ends it with one line on stderr."""
    try:
        database = open_database(url)
        if what == "list":
            with database.read() as connection:
                names = connection.execute(sa.select(task_queue.c.task_id)).scalars().all()
            sys.stdout.write("".join(f"{name}\n" for name in names))
            return 0
        for _ in range(int(what)):
            name = uuid.uuid4().hex
            with database.write() as connection:
                connection.execute(sa.insert(task_queue).values(task_id=name, description=ROW))
            sys.stdout.write(f"{name}\n")
            sys.stdout.flush()
    except ProctorError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
