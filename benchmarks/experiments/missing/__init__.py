"""Missing entries: time to a common error."""
