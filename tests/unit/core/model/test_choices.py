"""What a member tells about its policy and its assignor."""

import enum
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

from coopgroup.assignors import LagAwareAssignor, PlacementAssignor, RangeAssignor, StickyAssignor
from coopgroup.core.assignors.placement import ResourceToPlace
from coopgroup.core.model.choices import MemberChoices, choices_of
from coopgroup.core.model.group import GroupMember
from coopgroup.policies import DeferredPolicy, IncrementalPolicy, SimplePolicy, Warmup
from coopgroup.protocol import UserData, decode_user_data, encode_user_data


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Mine(SimplePolicy):
    """A user's policy that keeps the name of its base class."""


@attrs.frozen
class Limits:
    most: int = 4


@attrs.frozen(kw_only=True)
class Own:
    """A user's assignor with an option of any type."""

    option: Any = None
    limits: Limits = attrs.field(factory=Limits)
    seen: Any = attrs.field(default=None, eq=False)
    made: Any = attrs.field(default=None, init=False)
    name: str = "own"
    needs_lags: bool = False

    def assign(self, *_: object) -> Any:  # noqa: ANN401 - never called
        raise NotImplementedError


class Rooms(PlacementAssignor):
    def places(self, member: GroupMember) -> int | None:
        return 1

    def score(self, member: GroupMember, resource: ResourceToPlace) -> float:
        return 1.0


def digest(option: object, **others: Any) -> int | None:  # noqa: ANN401 - of any field
    return choices_of(SimplePolicy(), Own(option=option, **others)).assignor_digest


def test_names_are_those_of_configurations() -> None:
    told = choices_of(DeferredPolicy(), LagAwareAssignor())
    assert (told.policy, told.assignor) == ("deferred", "lag-aware")


def test_choices_of_a_member_that_has_not_loaded_its_defaults_are_those_of_the_defaults() -> None:
    assert choices_of(None, None) == choices_of(SimplePolicy(), StickyAssignor())


def test_names_of_a_users_classes_are_those_of_the_classes() -> None:
    told = choices_of(Mine(), Rooms())
    assert (told.policy, told.assignor) == ("Mine", "Rooms")
    assert told.assignor_digest is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (DeferredPolicy(), DeferredPolicy(scheduled_rebalance_timeout_ms=1)),
        (
            DeferredPolicy(scheduled_rebalance_timeout_ms=1),
            DeferredPolicy(initial_delay_ms=1),
        ),
        (SimplePolicy(), SimplePolicy(warmup=Warmup())),
        (SimplePolicy(warmup=Warmup()), SimplePolicy(warmup=Warmup(standbys=1))),
        (
            IncrementalPolicy(warmup=Warmup(co_partition=[("a", "b")])),
            IncrementalPolicy(warmup=Warmup(co_partition=[("a", "c")])),
        ),
    ],
)
def test_other_options_have_another_digest(one: Any, other: Any) -> None:  # noqa: ANN401
    told, others = (choices_of(policy, StickyAssignor()) for policy in (one, other))
    assert told.policy == others.policy
    assert told.policy_digest != others.policy_digest


def test_options_with_the_value_of_their_default_do_not_count() -> None:
    """A later release may add options: members of both releases must agree."""
    given = DeferredPolicy(scheduled_rebalance_timeout_ms=60_000)
    told = choices_of(given, RangeAssignor())
    assert told == choices_of(DeferredPolicy(), RangeAssignor())
    assert told.policy_digest == told.assignor_digest


OPTIONS: list[Callable[[], object]] = [
    lambda: 1,
    lambda: 0.25,
    lambda: True,
    lambda: "text",
    lambda: (1, "b"),
    lambda: {"a": [1], "b": {"c"}},
    lambda: {"b", "a", "c"},
    lambda: Colour.RED,
    lambda: Colour.BLUE,
    lambda: Limits(most=9),
    lambda: sorted,
    object,
]


def test_digest_is_that_of_equal_options() -> None:
    """The objects are made anew each time, as in two processes."""
    assert [digest(one()) for one in OPTIONS] == [digest(one()) for one in OPTIONS]
    assert len({digest(one()) for one in OPTIONS}) == len(OPTIONS)
    assert digest(2) == digest(2.0)
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})


def test_digest_ignores_what_is_no_option() -> None:
    assert digest(1, seen=os.getpid()) == digest(1)
    one = Own(option=1)
    object.__setattr__(one, "made", 5)
    assert choices_of(SimplePolicy(), one).assignor_digest == digest(1)
    assert digest(1, limits=Limits(most=5)) != digest(1)


@pytest.mark.parametrize("hostile", ["itself", "raises", "array"])
def test_digest_of_options_that_cannot_be_read_is_unknown(hostile: str) -> None:
    loop: list[object] = []
    loop.append(loop)

    class Raises(dict[str, int]):
        def items(self) -> Any:  # noqa: ANN401
            raise RuntimeError("no")

    options = {"itself": loop, "raises": Raises(), "array": np.arange(3)}
    found = digest(options[hostile])
    assert found == (digest(np.arange(9)) if hostile == "array" else None)


def test_digest_is_the_same_in_all_processes_and_releases() -> None:
    code = (
        "from coopgroup.core.model.choices import choices_of\n"
        "from coopgroup import DeferredPolicy, LagAwareAssignor\n"
        "told = choices_of(DeferredPolicy(initial_delay_ms=7), LagAwareAssignor(scope='group'))\n"
        "print(told.policy_digest, told.assignor_digest)\n"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {"3227147902 3600183401\n"}


def test_choices_of_a_long_name_can_be_told() -> None:
    kind = type("K" * 40_000, (SimplePolicy,), {})
    kind.__module__ = "mine"
    told = choices_of(kind(), StickyAssignor())
    assert told.policy == "K" * 100
    assert decode_user_data(encode_user_data(UserData(choices=told))) == UserData(choices=told)
    assert isinstance(told, MemberChoices)
    assert json.dumps(attrs.asdict(told))
