"""Probes of a process: is it alive, and does it take part in its groups?

`serve` starts a small HTTP server for Kubernetes and Prometheus. It answers from the members'
`health()`, and needs no library beyond Python's own.
"""

from coopgroup.health.server import HealthServer, serve
from coopgroup.kafka.health.value import Health, HealthLimits, StuckPartition

__all__ = ["Health", "HealthLimits", "HealthServer", "StuckPartition", "serve"]
