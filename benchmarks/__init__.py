"""Figures beside what a user would pick instead, taken in the same run: `python -m benchmarks`."""
