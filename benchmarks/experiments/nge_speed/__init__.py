"""The solvers of nonnegative graph embedding, compared."""
