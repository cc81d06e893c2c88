"""Pages, pictures, scores and findings from the rows of runs."""
