"""Tests of the façades."""
