"""Records by hand, as the checkers read them."""

from typing import Any

from coopgroup.core.model import ResourceSet
from coopgroup.telemetry import Envelope, Record, RoundDecided

T0, T1, T01 = ResourceSet({"T": [0]}), ResourceSet({"T": [1]}), ResourceSet({"T": [0, 1]})


def envelope(
    at_ms: int, generation: int, record: Record, client: str = "a", member: str = "m"
) -> Envelope:
    return Envelope(
        at_ms=at_ms, group="g", member=member, generation=generation, record=record, client=client
    )


def led(members: tuple[str, ...] = ("m",), **decided: Any) -> RoundDecided:  # noqa: ANN401
    return RoundDecided(policy="p", assignor="s", members=members, **decided)
