"""PTX instructions as Numba intrinsics, one file a feature."""
