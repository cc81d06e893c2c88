"""Semi-supervised and multi-view classifiers: one method a file."""
