"""One module, or one folder, for each kind of experiment that a config can name."""
