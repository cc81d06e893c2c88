"""Checkpoints of fits: their files, and by what they are known again."""
