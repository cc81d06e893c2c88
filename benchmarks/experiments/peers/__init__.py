"""Other packages, compared."""
