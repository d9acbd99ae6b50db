"""A minimal scenario file. Tests of refusals count its lines from the first one."""

__all__ = ["SMALL"]

SMALL = """\
duration_ms = 60000

[topics.orders]
partitions = 2
rate_per_s = 10

[[members]]
name = "worker"
count = 3

[[members]]
name = "solo"
"""
