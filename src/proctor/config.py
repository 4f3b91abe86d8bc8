"""Typed settings, read once."""
