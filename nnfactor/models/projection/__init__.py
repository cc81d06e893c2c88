"""Linear projections: one method a file."""
