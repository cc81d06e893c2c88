"""Data that are read in blocks of rows, because they are larger than memory."""
