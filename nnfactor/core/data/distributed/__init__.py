"""Samples that are split over processes."""
