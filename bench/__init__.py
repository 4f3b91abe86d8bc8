"""Benchmarks: `python3 dev.py bench [NAMES]` prints one JSON object; ratios are measured in one run."""
