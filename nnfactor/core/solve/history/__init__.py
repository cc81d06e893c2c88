"""What a run remembers, tells and returns."""
