"""Memory that a run needs, before it begins."""
