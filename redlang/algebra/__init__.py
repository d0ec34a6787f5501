"""The algebra: which reductions can share a sweep, the proof, and the incremental form."""
