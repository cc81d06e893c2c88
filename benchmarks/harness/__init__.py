"""Configurations, kinds of experiments, studies and their rows."""
