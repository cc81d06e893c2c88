"""The terms a model is a list of: one file per kind."""
