"""Clocks, memory and what the machine can do."""
