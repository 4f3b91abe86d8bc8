"""Proctor runs AI coding agents on a repository and is answerable for what they did."""

__all__ = ["__version__"]

__version__ = "0.1.0"
