"""Assignors decide WHERE each resource should be; policies decide WHEN it moves there."""
