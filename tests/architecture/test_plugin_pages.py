"""The documented examples of a custom assignor and a custom policy run unchanged."""

from typing import Any

import pytest
from markdown_it import MarkdownIt

from coopgroup.assignors import Assignor, StickyAssignor, assignor_names
from coopgroup.policies import Policy, SimplePolicy, policy_names
from tests.architecture.tree import ROOT


def _run(page: str) -> dict[str, Any]:
    """Run all Python blocks of a page in order, and return their definitions."""
    tokens = MarkdownIt().parse((ROOT / "docs" / page).read_text())
    blocks = [token.content for token in tokens if token.info == "python"]
    names: dict[str, Any] = {"__name__": page}
    for block in blocks:
        exec(compile(block, page, "exec"), names)  # noqa: S102 - our own pages
    return names


def test_assignor_page_when_run_defines_and_registers_an_assignor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The assertions of the page hold, and its class satisfies the Protocol."""
    factories = {"sticky": StickyAssignor}
    monkeypatch.setattr("coopgroup.assignors.registry._ASSIGNORS._factories", factories)
    names = _run("custom_assignor.md")
    assert isinstance(names["ColocatedAssignor"](), Assignor)
    assert assignor_names() == ("colocated", "sticky")


def test_policy_page_when_run_defines_and_registers_a_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The assertions of the page hold, and its class satisfies the Protocol."""
    factories = {"simple": SimplePolicy}
    monkeypatch.setattr("coopgroup.policies.registry._POLICIES._factories", factories)
    names = _run("custom_policy.md")
    assert isinstance(names["SettledPolicy"](), Policy)
    assert policy_names() == ("settled", "simple")
