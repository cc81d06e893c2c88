"""How costs grow with sizes."""
