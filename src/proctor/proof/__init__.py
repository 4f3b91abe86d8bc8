"""Proof: what shows that a change is real. Pure functions over texts, diffs and files; nothing here trusts a claim."""
