"""Errors of the test broker; each message is one line."""

from __future__ import annotations

from coopgroup.errors import CoopgroupError


class ClusterError(CoopgroupError):
    """The cluster cannot do this in its current state."""


class ClusterStartError(ClusterError):
    """A broker did not start; the last lines of its log are in the error's notes."""


class ToolError(ClusterError):
    """One of Kafka's command-line tools failed; its output is in the error's notes."""


class KafkaFetchError(ClusterError):
    """Kafka's jars could not be downloaded or prepared."""


class ToolMissingError(ClusterError):
    """A program or Python package that the test broker needs is not installed.

    Args:
        tool: name of the missing program or package.
        remedy: how to install it, as the end of the sentence "…; install it with …".
    """

    def __init__(self, tool: str, remedy: str) -> None:
        super().__init__(
            f"{tool} is missing, which the test broker needs; install it with {remedy}"
        )
        self.tool = tool
        self.remedy = remedy
