"""The page lists every public name of the other consumers for asyncio that ours lacks."""

import re
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]
from confluent_kafka.aio import AIOConsumer

from coopgroup.aio import AsyncCooperativeConsumer

PAGE = Path("docs/asyncio.md").read_text()


def public(consumer: type) -> set[str]:
    return {name for name in dir(consumer) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("other", "heading"),
    [(AIOKafkaConsumer, "From aiokafka"), (AIOConsumer, "From `confluent_kafka.aio.AIOConsumer`")],
)
def test_page_lists_every_name_that_is_missing(other: type, heading: str) -> None:
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    (listed,) = re.findall(r"^Not available: (.*)\.$", section, re.MULTILINE)
    missing = public(other) - public(AsyncCooperativeConsumer)
    assert re.findall(r"`(\w+)`", listed) == sorted(missing)
