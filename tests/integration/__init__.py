"""Tests across rooms, with the names the seeds gave them."""
