"""What each verb does; a module has `run(arguments, parameters)`, which returns the exit status."""
