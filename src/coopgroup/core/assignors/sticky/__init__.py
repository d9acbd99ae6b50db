"""Sticky assignment: balance first, fewest moves second, racks third."""
