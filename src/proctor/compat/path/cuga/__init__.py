"""Seed 002's package under its own name; put this directory's parent on PYTHONPATH (`proctor compat path`)."""
