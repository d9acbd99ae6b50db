"""Scenarios that take no time, for tests of the code around scenarios."""

SMALL = """\
duration_ms = 60000

[topics.orders]
partitions = 2
rate_per_s = 10

[[members]]
name = "worker"
count = 3
"""

CRASH = """\
duration_ms = 30000
settle_ms = 20000

[group]
session_timeout_ms = 6000
heartbeat_interval_ms = 1000

[policies.deferred]
scheduled_rebalance_timeout_ms = 9000

[topics.t]
partitions = 4
rate_per_s = 5

[[members]]
name = "m"
count = 2

[[events]]
at_ms = 10000
kind = "crash"
member = "m-1"
back_after_ms = 10000
"""
