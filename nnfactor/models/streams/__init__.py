"""Sources that are learned from batch by batch, over epochs."""
