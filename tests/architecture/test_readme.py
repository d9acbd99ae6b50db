"""The README's examples work, and its links lead to existing files."""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer

import coopgroup
from docs.make_policies_page import README_PICTURE, README_POLICIES
from tests.architecture.readme import (
    page_examples,
    page_fences,
    readme_links,
    tables_between,
)
from tests.architecture.tree import ROOT
from tests.benchmarks import headline
from tests.lab.scenarios import SCENARIOS
from tests.support.mock_broker import MOCK_CONFIG, MOCK_PARTITIONS, mock_broker

README = ROOT / "README.md"
EXAMPLES = page_examples(README, "python broker")
RECORDS = 8


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Return the address of a mock broker: RECORDS records in `orders`, evenly distributed."""
    with mock_broker() as address:
        producer = Producer({"bootstrap.servers": address, "log_level": 0})
        for number in range(RECORDS):
            producer.produce("orders", f"order-{number}", partition=number % MOCK_PARTITIONS)
        assert producer.flush(30) == 0
        yield address


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_runs(
    number: int,
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The example prints the records of its topic, and ends without an error."""
    config = {"bootstrap.servers": address, **MOCK_CONFIG, "group.id": f"readme-{number}"}

    class Consumer(coopgroup.CooperativeConsumer):
        """The consumer, on the mock broker and only for the existing records."""

        def __init__(self, configuration: dict[str, Any], **more: Any) -> None:  # noqa: ANN401
            super().__init__({**configuration, **config}, **more)

        def __iter__(self) -> Iterator[Message]:
            return islice(super().__iter__(), RECORDS)

    monkeypatch.setattr(coopgroup, "CooperativeConsumer", Consumer)
    code = compile(EXAMPLES[number], "README.md", "exec")
    exec(code, {"__name__": "__main__"})  # noqa: S102 - the README's own text
    expected = sorted(f"{record % 4} order-{record}" for record in range(RECORDS))
    assert sorted(capsys.readouterr().out.splitlines()) == expected


def test_examples_are_of_a_kind_that_is_tested() -> None:
    """A typing error in a block's mark must not exclude it from these and the broker tests."""
    kinds = {kind for kind in page_fences(README) if "py" in kind.lower()}
    assert sorted(kinds) == ["python broker"]


def test_tables_of_the_headline_have_a_figure_for_each_kind_and_scenario() -> None:
    tables = _tables(headline.PAGE, "headline")
    assert len(tables) == 3
    titles = [SCENARIOS[one].title for one in headline.DEFAULT_SCENARIOS]
    for (_, *kinds), *rows in tables:
        assert kinds == list(headline.DEFAULT_KINDS)
        assert [row[0] for row in rows] == titles
        assert [row for row in rows if not _has_figures(row)] == []


def test_first_table_is_that_of_its_page() -> None:
    """A column may be absent: where a tool was missing, its kind was not measured."""
    measured = _tables(headline.PAGE, "default-timeouts")
    assert _tables(README, "default-timeouts") == measured
    (((_, *kinds), *rows),) = measured
    assert kinds == [heading for heading in headline.HEADINGS.values() if heading in kinds]
    assert set(headline.HEADINGS.values()) - set(kinds) <= {"franz-go, KIP-848"}
    assert [row[0] for row in rows] == [SCENARIOS[one].title for one in headline.SHOWN_SCENARIOS]
    assert [row for row in rows if not _has_figures(row)] == []


def _tables(page: Path, name: str) -> list[list[list[str]]]:
    return tables_between(page, f"<!-- {name}:begin -->", f"<!-- {name}:end -->")


def _has_figures(row: list[str]) -> bool:
    """Return whether every cell after the title has a figure."""
    return all(any(one.isdigit() for one in cell) for cell in row[1:])


def test_throughput_is_that_of_its_page() -> None:
    """The README must not keep a ratio of an earlier measurement."""
    (table,) = tables_between(headline.PAGE, "## Throughput", "## Start, idle and memory")
    readme = README.read_text()
    for method, ours, theirs, ratio in table[1:]:
        assert round(float(ours) / float(theirs), 2) == float(ratio)
        assert re.search(rf"{ratio} times[^,;]* with {method}", readme)


def test_picture_has_a_panel_for_each_of_its_policies() -> None:
    """If this fails: python -m docs.make_policies_page."""
    texts = re.findall("<text[^>]*>([^<]*)</text>", README_PICTURE.read_text())
    assert tuple(texts[: len(README_POLICIES)]) == README_POLICIES
    assert f"]({README_PICTURE.relative_to(ROOT).as_posix()})" in README.read_text()


def test_links_lead_somewhere() -> None:
    inside = [link for link in readme_links() if "://" not in link and not link.startswith("#")]
    assert [link for link in inside if not (ROOT / link.partition("#")[0]).exists()] == []
