"""Compiling and loading: the two halves, definitions, the loader and its records."""
