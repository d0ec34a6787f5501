"""Measurements on this machine: redlang beside NumPy, torch and hand-written Numba."""
