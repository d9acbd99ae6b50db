"""Policies by name."""

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.policies import SimplePolicy, create_policy, policy_names, register_policy


def test_create_when_name_is_unknown_lists_what_there_is() -> None:
    with pytest.raises(ConfigurationError) as caught:
        create_policy("lazy")
    names = ", ".join(policy_names())
    assert str(caught.value) == f"policy: got 'lazy', expected one of {names}, or module:Class"


def test_create_when_option_is_unknown_names_it() -> None:
    with pytest.raises(ConfigurationError) as caught:
        create_policy("simple", {"delay_ms": 5})
    assert str(caught.value) == ("option of policy simple: got 'delay_ms', expected one of warmup")


def test_register_when_name_is_new_can_be_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coopgroup.policies.registry._POLICIES._factories", {})
    register_policy("mine", SimplePolicy)
    assert (create_policy("mine"), policy_names()) == (SimplePolicy(), ("mine",))
