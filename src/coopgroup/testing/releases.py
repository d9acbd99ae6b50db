"""Differences between releases of Kafka that matter to a test broker.

Since 3.3 Kafka runs without ZooKeeper (KRaft). Older releases get a ZooKeeper. The remaining
differences are small: the path of the bootstrap snapshot, and the first release with the security
settings of the tests.
"""

from __future__ import annotations

import re
from typing import Final

from attrs import frozen

from coopgroup.errors import ConfigurationError

__all__ = ["KAFKA_VERSION", "KafkaRelease", "read_release"]

KAFKA_VERSION: Final = "4.3.0"
"""Release of all tests that do not name one."""
# No test has run with 2.4. Earlier releases have a ZooKeeper 3.4 client, which cannot resolve
# addresses on Java 14 and newer (ZOOKEEPER-3779): Kafka 2.1.1 did not start.
_OLDEST: Final = (2, 5)
_FIRST_KRAFT: Final = (3, 3)
# KIP-651; the same release allows SCRAM users over Kafka's protocol (KIP-554)
_FIRST_PEM: Final = (2, 7)
_FIRST_BOOTSTRAP_IN_LOG: Final = (4, 4)
_FIRST_KRAFT_SCRAM: Final = (3, 5)  # KIP-900
# Maven Central has no kafka-tools of these releases, so an earlier release provides them.
_TOOLS_OF: Final = {"4.4.0": "4.3.1"}


@frozen(kw_only=True)
class KafkaRelease:
    """A release of Kafka.

    Attributes:
        line: the first two numbers.
    """

    version: str
    line: tuple[int, int]

    @property
    def is_kraft(self) -> bool:
        """Whether its brokers run without ZooKeeper."""
        return self.line >= _FIRST_KRAFT

    @property
    def checkpoint_path(self) -> str:
        """Path of the bootstrap snapshot from its storage tool, below the log folder."""
        if self.line >= _FIRST_BOOTSTRAP_IN_LOG:
            return "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
        return "bootstrap.checkpoint"

    @property
    def tools_version(self) -> str:
        """Version of the jar with the command-line tools."""
        return _TOOLS_OF.get(self.version, self.version)

    def check_security(self, security: str | None) -> None:
        """Refuse a kind of security that the release does not support.

        Raises:
            ConfigurationError: PEM files or SCRAM users came later.
        """
        if security is None:
            return
        if self.line < _FIRST_PEM:
            raise ConfigurationError(
                "security", security, f"None with Kafka {self.version}, which reads no PEM files"
            )
        if "SASL" in security and _FIRST_KRAFT <= self.line < _FIRST_KRAFT_SCRAM:
            raise ConfigurationError(
                "security", security, f"no SASL with Kafka {self.version}: its KRaft has no SCRAM"
            )


def read_release(version: str) -> KafkaRelease:
    """Read the name of a release.

    Raises:
        ConfigurationError: the name is invalid, or the release is too old for the test cluster.
    """
    numbers = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", version, re.ASCII)
    expected = f"a release of Kafka from {_OLDEST[0]}.{_OLDEST[1]}.0 on, such as {KAFKA_VERSION}"
    if numbers is None:
        raise ConfigurationError("version", version, expected)
    line = (int(numbers[1]), int(numbers[2]))
    if line < _OLDEST:
        raise ConfigurationError("version", version, expected)
    return KafkaRelease(version=version, line=line)
