"""`coopgroup bell`: the topic that tells members of a round ahead of their heartbeats."""

from __future__ import annotations

import click

from coopgroup.cli.app import PlainGroup
from coopgroup.cli.own_topics import create_command
from coopgroup.kafka.config.keys import BELL_TOPIC

__all__ = ["command"]


@click.group("bell", cls=PlainGroup)
def command() -> None:
    """Create the topic that tells members of a round ahead of their heartbeats."""


command.add_command(
    create_command(
        about="Create the topic of the bell, unless it exists.",
        key="coopgroup.bell.topic",
        default_topic=BELL_TOPIC,
        partitions_help="A member reads the rings of all groups on its partition.",
        # Rings are old after a second. A segment is deleted only when it is closed, so both are
        # short.
        topic_settings={
            "cleanup.policy": "delete",
            "compression.type": "uncompressed",
            "message.timestamp.type": "LogAppendTime",
            "min.insync.replicas": "1",
            "retention.ms": "600000",
            "segment.ms": "600000",
            "segment.bytes": "1048576",
        },
    )
)
