"""Lag-aware assignment, and the search for the moves that even out a load."""
