"""What a GPU reaches: in one run of at most ten minutes, part by part."""
