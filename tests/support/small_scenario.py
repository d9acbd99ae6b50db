"""A scenario that takes no time, for tests of what is done with scenarios."""

__all__ = ["SMALL"]

SMALL = """\
duration_ms = 60000

[topics.orders]
partitions = 2
rate_per_s = 10

[[members]]
name = "worker"
count = 3
"""
