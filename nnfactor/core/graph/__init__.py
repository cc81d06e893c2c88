"""Weighted undirected graphs over samples, and nearest neighbours."""
