"""From a decorated function to a Program: capture its text, parse it, resolve its names."""
