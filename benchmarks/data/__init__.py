"""Data sets, splits, occluded images, pictures."""
