"""Save runs of the swarm as TOML files. `simulations/regressions` contains runs that have failed.

A file contains the events themselves, so it stays valid when draws change. Unknown keys are
refused.
"""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any, Final

import attrs

from coopgroup.errors import ConfigurationError
from coopgroup.simulator.scenario import Choice, Identity
from tests.swarm.runs import Act, ActKind, Faults, SwarmRun

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_PLAIN: Final = ("seed", "assignor", "rebalance_timeout_ms", "healed_after_ms")


def read_run(path: Path) -> SwarmRun:
    """Read a run.

    Raises:
        ConfigurationError: the file is not TOML, or has an unknown key or a wrong value.
    """
    try:
        row = tomllib.loads(path.read_text(encoding="utf-8"))
        policy = dict(row.pop("policy"))
        return SwarmRun(
            policy=Choice(name=policy.pop("name"), options=policy),
            faults=Faults(**row.pop("faults", {})),
            acts=tuple(_act(act) for act in row.pop("acts", ())),
            **row,
        )
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError, AttributeError) as cause:
        raise ConfigurationError(str(path), str(cause), "a run of the swarm") from cause


def run_to_toml(run: SwarmRun, *, comment: str = "") -> str:
    """Return a run as TOML, without the values that equal their defaults."""
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    lines += [f"{name} = {_value(getattr(run, name))}" for name in _PLAIN]
    if run.theirs:
        lines.append(f"theirs = {_value(run.theirs)}")
    lines += ["", "[policy]", *_pairs({"name": run.policy.name, **run.policy.options})]
    faults = _unusual(run.faults)
    if faults:
        lines += ["", "[faults]", *_pairs(faults)]
    for act in run.acts:
        lines += ["", "[[acts]]", *_pairs({"kind": act.kind, **_unusual(act)})]
    return "\n".join(lines) + "\n"


def _act(row: Mapping[str, Any]) -> Act:
    values = dict(row)
    if "topics" in values:
        values["topics"] = tuple(values["topics"])
    identity = Identity(values.pop("identity", Identity.NONE))
    return Act(kind=ActKind(values.pop("kind")), identity=identity, **values)


def _unusual(value: Act | Faults) -> dict[str, Any]:
    """Return the fields that differ from their defaults."""
    return {
        field.name: getattr(value, field.name)
        for field in attrs.fields(type(value))
        if field.default is not attrs.NOTHING and getattr(value, field.name) != field.default
    }


def _pairs(row: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_value(value)}" for key, value in row.items()]


def _value(value: object) -> str:
    """Return a value as JSON; strings, numbers, booleans and lists look the same in TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(_pairs(value)) + " }"
    return json.dumps(list(value) if isinstance(value, tuple) else value)
