"""Targets: what generated text may call, and text → something to launch."""
