"""Embedded messages of a group: bytes to values and back, bounds-checked."""
