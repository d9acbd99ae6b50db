"""Policies by name, for configuration, command line and scenario files."""

from __future__ import annotations

from typing import Final

from coopgroup.core.model.named_factories import NamedFactories
from coopgroup.core.policies.base import Policy
from coopgroup.core.policies.deferred import DeferredPolicy
from coopgroup.core.policies.eager import EagerPolicy
from coopgroup.core.policies.incremental import IncrementalPolicy
from coopgroup.core.policies.simple import SimplePolicy

_POLICIES: Final = NamedFactories[Policy](
    "policy",
    {
        policy.name: policy
        for policy in (DeferredPolicy, EagerPolicy, IncrementalPolicy, SimplePolicy)
    },
    made=Policy,
)

choose_policy = _POLICIES.choose
create_policy = _POLICIES.create
policy_names = _POLICIES.names
register_policy = _POLICIES.register
