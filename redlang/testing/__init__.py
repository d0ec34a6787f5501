"""Tools for testing kernels, in redlang's own suite and in yours."""
