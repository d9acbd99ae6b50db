"""Fetch records, hand them out, and commit their offsets."""
