"""Factories of installed packages and of modules, with a distribution on `sys.path`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from coopgroup.assignors import assignor_names, create_assignor
from coopgroup.errors import ConfigurationError
from coopgroup.policies import Policy, SimplePolicy, create_policy, policy_names

SOURCE = """
from attrs import frozen
from coopgroup.assignors import StickyAssignor
from coopgroup.policies import SimplePolicy

@frozen(kw_only=True)
class Calm(SimplePolicy):
    name = "calm"
    rounds: int = 1

class Placer(StickyAssignor):
    name = "placer"

class Outer:
    Inner = Calm

class Nothing:
    pass

class Fussy(SimplePolicy):
    name = "fussy"

    def __init__(self, level=1):
        if level != 1:
            raise TypeError("level must\\nbe 1")

LIMIT = 7
"""


def install(folder: Path, package: str, points: str) -> None:
    """Write the metadata that an installer of packages writes."""
    info = folder / f"{package.replace('-', '_')}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(points)
    importlib.invalidate_caches()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "offered_calm.py").write_text(SOURCE)
    install(
        tmp_path,
        "calm-policies",
        "[coopgroup.policies]\n"
        "calm = offered_calm:Calm\n"
        "simple = offered_calm:Calm\n"
        "gone = offered_gone:Calm\n"
        "limit = offered_calm:LIMIT\n"
        "[coopgroup.assignors]\n"
        "placer = offered_calm:Placer\n",
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "offered_calm", raising=False)
    return tmp_path


def test_names_of_an_installed_package_and_classes_of_a_module_are_created_with_options(
    site: Path,
) -> None:
    for name in ("calm", "offered_calm:Calm", "offered_calm:Outer.Inner"):
        policy = create_policy(name, {"rounds": 3})
        assert (policy.name, policy.rounds) == ("calm", 3)  # type: ignore[attr-defined]
        assert isinstance(policy, Policy)
    assert create_assignor("placer").name == "placer"
    assert {"calm", "simple"} < {*policy_names()}
    assert "placer" in assignor_names()


def test_name_of_our_own_stays_ours(site: Path) -> None:
    assert type(create_policy("simple")) is SimplePolicy
    assert policy_names().count("simple") == 1


# fmt: off
FAILURES: list[tuple[str, dict[str, object], str]] = [
    ("clam", {}, ("policy: got 'clam', expected one of calm, deferred, eager, gone, incremental, "
                 "limit, simple, or module:Class")),
    ("gone", {}, ("policy: got 'gone', expected the entry point offered_gone:Calm of the package "
                 "calm-policies 1.2 to load: ModuleNotFoundError: No module named 'offered_gone'")),
    ("limit", {}, "policy: got 'limit', expected a class, but it names 7"),
    ("calm", {"round": 1}, "option of policy calm: got 'round', expected one of rounds, warmup"),
    ("offered_gone:Calm", {},
     ("policy: got 'offered_gone:Calm', expected a module that can be imported: "
     "ModuleNotFoundError: No module named 'offered_gone'")),
    ("offered_calm:Clam", {},
     ("policy: got 'offered_calm:Clam', expected module:Class: AttributeError: module "
     "'offered_calm' has no attribute 'Clam'")),
    ("offered_calm:", {}, "policy: got 'offered_calm:', expected module:Class"),
    ("offered_calm:Nothing", {}, ("policy: got 'offered_calm:Nothing', expected a class that makes "
                                 "a policy: its objects lack name, offer, stage")),
    ("offered_calm:Fussy", {"level": 2},
     ("policy offered_calm:Fussy: got {'level': 2}, expected options that it takes "
     "(TypeError: level must be 1)")),
]
# fmt: on


@pytest.mark.parametrize(("name", "options", "message"), FAILURES)
def test_failure_of_another_package_is_one_line(
    site: Path, name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        create_policy(name, options)
    assert str(caught.value) == message


def test_name_that_two_packages_offer_is_refused(site: Path) -> None:
    install(site, "other", "[coopgroup.policies]\ncalm = other:Calm\n")
    with pytest.raises(ConfigurationError) as caught:
        create_policy("calm")
    assert str(caught.value) == (
        "policy: got 'calm', expected a name of one package; these offer it: "
        "calm-policies 1.2 (offered_calm:Calm), other 1.2 (other:Calm)"
    )
