"""What all estimators share: the surface, the way from data to results, inputs, parameters."""
