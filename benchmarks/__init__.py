"""Benchmarks: `python -m benchmarks CONFIG`. A config names a kind of experiment and its parameters; see `kinds.py`."""
