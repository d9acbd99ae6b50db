"""What holds for every test: markers by folder, and how hard Hypothesis looks.

Hypothesis profiles, chosen by the environment variable HYPOTHESIS_PROFILE:

- `dev` (the default): few examples, always the same ones, so that a red run is red again.
- `ci` (where the variable CI is set): more of the same.
- `soak`: many, new ones each time; `--hypothesis-seed=n` repeats some.
"""

import os
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.support.scheduling import (
    LONG_FILES,
    ON_BROKERS,
    ON_SPARK,
    FolderScheduling,
    yield_to_brokers,
)

pytest_plugins = ["coopgroup.testing.plugin"]

yield_to_brokers()

_TESTS = Path(__file__).parent
_LONGEST_FIRST = (*ON_BROKERS, "property", ON_SPARK)

# A shared machine with two cores makes single examples slow for no fault of theirs, so no example
# has a deadline; pytest-timeout bounds the test as a whole.
settings.register_profile("dev", max_examples=25, derandomize=True, deadline=None)
settings.register_profile("ci", max_examples=200, derandomize=True, deadline=None)
settings.register_profile(
    "soak",
    max_examples=1_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"),
)


@pytest.fixture
def subtests(
    subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> Generator[pytest.Subtests]:
    """Those of pytest. A test whose matrix has no cell fails."""
    cells = []
    test = subtests.test

    def counted(msg: str | None = None, **values: Any) -> Any:  # noqa: ANN401 - as pytest's
        cells.append(msg)
        return test(msg, **values)

    monkeypatch.setattr(subtests, "test", counted)
    yield subtests
    assert cells, "no cell was tried"


@pytest.fixture
def own_threads() -> Callable[[], list[str]]:
    """Name coopgroup's living threads that this test has started, sorted.

    Threads of earlier tests may idle for seconds. The thread of metrics lives as long as its
    metrics, which no consumer owns.
    """
    earlier = set(threading.enumerate())

    def names() -> list[str]:
        own = (one.name for one in threading.enumerate() if one not in earlier)
        return sorted(
            one for one in own if one.startswith("coopgroup") and one != "coopgroup-metrics"
        )

    return names


def pytest_addoption(parser: pytest.Parser) -> None:
    """Golden files are rewritten on demand; what changed is then a diff that somebody reads."""
    parser.addoption(
        "--rewrite-transcripts",
        action="store_true",
        help="write simulations/transcripts anew instead of comparing with them",
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """Give each test the marker (pyproject.toml lists them) of the folder that it lives in."""
    markers = {line.partition(":")[0] for line in config.getini("markers")}
    for item in items:
        folder = item.path.relative_to(_TESTS).parts[0]
        if folder in markers:
            item.add_marker(folder)
    yield  # they are shuffled
    items.sort(key=_place)


def _place(item: pytest.Item) -> tuple[int, bool]:
    folder = item.path.relative_to(_TESTS).parts[0]
    place = _LONGEST_FIRST.index(folder) if folder in _LONGEST_FIRST else len(_LONGEST_FIRST)
    return place, item.nodeid.partition("::")[0] not in LONG_FILES


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:  # noqa: ANN401  (no public type)
    """Hand tests out to several processes (`make pytest`)."""
    return FolderScheduling(config, log)
