"""Data behind a few verbs, and the storage kinds that answer them."""
