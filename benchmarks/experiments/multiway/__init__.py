"""Models of several modes: time to a common error."""
