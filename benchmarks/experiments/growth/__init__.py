"""How far sweeps scale: measured on few processes, and a model of constants that were measured apart."""
