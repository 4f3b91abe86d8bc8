"""Durable execution: the task queue, attempts, leases, reconciler and supervisor. Only this room knows DBOS.

Our tables are the truth; DBOS holds what has been handed to an executor (docs/decisions). Importing this package,
or `tasks` and `client` in it, does not import dbos: reading and adding tasks stays light.
"""
