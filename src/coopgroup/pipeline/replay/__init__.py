"""Replays: the episodes of a real group in the simulator, under other settings."""
