"""How often the number of components of generated data is found, and how long that takes."""
