"""l1 codes of samples over other samples."""
