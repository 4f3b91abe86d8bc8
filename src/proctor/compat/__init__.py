"""Thin façades with the seeds' names over the real thing; docs/reference/seed-names.md says which is which."""
