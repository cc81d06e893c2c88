"""Sweeps with momentum, by torch and in one compiled loop."""
