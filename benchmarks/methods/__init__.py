"""Methods that several experiments share."""
