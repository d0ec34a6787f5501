"""redlang."""
