"""Policies decide WHEN a resource moves to where the assignor wants it."""
