"""Models of tensors, of several tensors, and of slices of different lengths."""
