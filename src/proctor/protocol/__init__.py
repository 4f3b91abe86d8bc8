"""The words of the house as types. Imports nothing of ours, does no I/O."""
