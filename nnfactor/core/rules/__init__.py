"""How a factor improves on its block: one rule a file."""
