"""Loops → text for a target's compiler."""
