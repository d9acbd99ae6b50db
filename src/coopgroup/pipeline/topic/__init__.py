"""The topic `__consumer_offsets`: its records, and their columns."""
