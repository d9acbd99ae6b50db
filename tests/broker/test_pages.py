"""Programs of the documentation, run as their readers run them, print what the pages show."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from coopgroup.cli.app import run
from coopgroup.testing import KafkaCluster
from coopgroup.testing.processes import free_ports
from tests.architecture.tree import ROOT
from tests.support.live_group import unique
from tests.support.page_reader import WAIT_S, Reader
from tests.support.probes import get
from tests.support.waiting import wait_for

pytestmark = pytest.mark.verify


@pytest.fixture
def reader_of(tmp_path: Path) -> Iterator[Callable[[str], Reader]]:
    with ExitStack() as cleanup:

        def make(page: str) -> Reader:
            reader = Reader(ROOT / "docs" / page, tmp_path)
            cleanup.enter_context(reader.cleanup)
            return reader

        yield make


def test_getting_started(kafka_cluster: KafkaCluster, reader_of: Callable[[str], Reader]) -> None:
    reader = reader_of("getting-started.md")
    kafka_cluster.create_topic("orders", partitions=6)
    address = kafka_cluster.bootstrap_servers
    reader.start("produce.py", address)
    shown = reader.shown("A consumer")
    assert len(shown) == 3

    reader.start("consume.py", address, "m1")
    seen = reader.expect(1)
    second = reader.start("consume.py", address, "m2")
    assert sorted(seen + reader.expect(2)) == shown

    second.send_signal(signal.SIGKILL)
    second.wait()
    second = reader.start("consume.py", address, "m2")
    assert reader.expect(1) == reader.shown("A restart")

    second.send_signal(signal.SIGTERM)
    assert reader.expect(2) == reader.shown("A process that leaves")
    assert second.wait(WAIT_S) == 0
    telemetry, page = reader.folder / "telemetry.jsonl", reader.folder / "report.html"
    assert run(["report", os.fspath(telemetry), "-o", os.fspath(page)]) == 0
    assert page.stat().st_size > 0


def test_broker_of_getting_started_prints_its_address_and_stops(
    reader_of: Callable[[str], Reader],
) -> None:
    reader = reader_of("getting-started.md")
    broker = reader.start("broker.py")
    (address,) = reader.expect(1)
    assert re.fullmatch(r"127\.0\.0\.1:\d+", address)
    assert broker.stdin is not None
    broker.stdin.write("\n")
    broker.stdin.flush()
    assert broker.wait(WAIT_S) == 0


def test_operations_from_nothing_to_a_red_probe(
    kafka_cluster: KafkaCluster, reader_of: Callable[[str], Reader]
) -> None:
    reader, address = reader_of("operations.md"), kafka_cluster.bootstrap_servers
    kafka_cluster.create_topic(topic := unique("orders"), partitions=6)
    for one in reader.folder.glob("*.py"):  # other pages use these names on the same broker
        text = one.read_text().replace('"billing"', f'"{topic}"').replace('"orders"', f'"{topic}"')
        one.write_text(text)
    page = reader.page.read_text().replace('group="billing"', f'group="{topic}"')
    shown = re.findall(r"^coopgroup_rebalances_total.*$", page, re.MULTILINE)
    assert len(shown) == 3
    ports = free_ports(2)
    reader.start("billing.py", address, "a", str(ports[0]))
    wait_for(lambda: shown[0] in get(ports[0], "metrics")[1], "the first round", WAIT_S)
    reader.start("billing.py", address, "b", str(ports[1]))
    wait_for(lambda: {*shown} <= {*get(ports[0], "metrics")[1].splitlines()}, "b", WAIT_S)
    assert reader.start("hang.py", address).wait(WAIT_S) == 0

    def stuck() -> list[int]:
        return [one for one in ports if "poll was not called for" in get(one, "livez")[1]]

    wait_for(stuck, "a red probe", WAIT_S)
    assert len(stuck()) == 1
    told = get(stuck()[0], "metrics")[1]
    assert re.search(r"^coopgroup_problems{.*} 1.0$", told, re.MULTILINE)


def test_group_of_your_own(kafka_cluster: KafkaCluster, reader_of: Callable[[str], Reader]) -> None:
    reader = reader_of("groups.md")
    address = kafka_cluster.bootstrap_servers
    shown = reader.shown("A first group")
    assert len(shown) == 12
    reader.start("jobs.py", address, "w1")
    seen = reader.expect(4)
    second = reader.start("jobs.py", address, "w2")
    seen += reader.expect(4)
    second.send_signal(signal.SIGTERM)
    seen += reader.expect(4)
    assert sorted(seen) == shown
    assert second.wait(WAIT_S) == 0


def test_example_of_the_page_on_testing_passes(reader_of: Callable[[str], Reader]) -> None:
    reader = reader_of("testing.md")
    (toml,) = re.findall(r"```toml\n(.*?)```", reader.page.read_text(), flags=re.DOTALL)
    (reader.folder / "pyproject.toml").write_text(toml)
    done = reader.start("-m", "pytest", "-q", "--color=no")
    assert done.wait(WAIT_S) == 0
    reader.cleanup.close()  # the rest of its output
    last = reader.lines[-1]
    assert re.fullmatch(r"1 passed in [\d.]+s", last)
    assert re.search(r"^1 passed in [\d.]+s$", reader.page.read_text(), re.MULTILINE)
