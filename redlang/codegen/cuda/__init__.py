"""Loops → Python text for Numba's CUDA compiler."""
