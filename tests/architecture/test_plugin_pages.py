"""The documented examples of an assignor and a policy of one's own run as they stand."""

from typing import Any

import pytest
from markdown_it import MarkdownIt

from coopgroup.assignors import Assignor, StickyAssignor
from coopgroup.assignors import registry as assignor_registry
from coopgroup.model.named_factories import NamedFactories
from coopgroup.policies import Policy, SimplePolicy
from coopgroup.policies import registry as policy_registry
from tests.architecture.tree import ROOT


def _run(page: str) -> dict[str, Any]:
    """Run all Python blocks of a page, one after the other, and give back what they defined."""
    tokens = MarkdownIt().parse((ROOT / "docs" / page).read_text())
    blocks = [token.content for token in tokens if token.info == "python"]
    names: dict[str, Any] = {"__name__": page}
    for block in blocks:
        exec(compile(block, page, "exec"), names)  # noqa: S102 - our own pages
    return names


def test_assignor_page_when_run_defines_and_registers_an_assignor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its assertions hold, and what it defines satisfies the Protocol."""
    fresh = NamedFactories[Assignor]("assignor", {"sticky": StickyAssignor})
    monkeypatch.setattr(assignor_registry, "_ASSIGNORS", fresh)
    names = _run("custom_assignor.md")
    assert isinstance(names["ColocatedAssignor"](), Assignor)
    assert fresh.names == ("colocated", "sticky")


def test_policy_page_when_run_defines_and_registers_a_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its assertions hold, and what it defines satisfies the Protocol."""
    fresh = NamedFactories[Policy]("policy", {"simple": SimplePolicy})
    monkeypatch.setattr(policy_registry, "_POLICIES", fresh)
    names = _run("custom_policy.md")
    assert isinstance(names["SettledPolicy"](), Policy)
    assert fresh.names == ("settled", "simple")
