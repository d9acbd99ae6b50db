"""Faults of a chaos run, drawn from a seed before the run begins.

A plan is a pure function of the seed, the length, and whether there is a network to disturb. The
same seed draws the same faults at the same moments; the reaction of a real cluster is not
repeatable. A target is a number: the run uses it to choose among the members or brokers that can be
hit.
"""

from random import Random

from attrs import frozen

MEMBERS = 6
GAP_S = (0.3, 2.0)


@frozen
class Kind:
    """One kind of fault.

    Attributes:
        weight: relative frequency.
        seconds: shortest and longest duration; a killed process is started again after it.
        on: the target: "member", "broker", "link" or "topic".
    """

    weight: int
    seconds: tuple[float, float]
    on: str


KINDS: dict[str, Kind] = {
    "kill member": Kind(5, (0.2, 9), "member"),
    "kill group leader": Kind(3, (0.2, 9), "member"),
    "freeze member": Kind(5, (0.3, 12), "member"),
    "freeze group leader": Kind(2, (0.3, 12), "member"),
    "close member": Kind(2, (0.2, 6), "member"),
    "hand over member": Kind(2, (0.2, 6), "member"),
    "application does not poll": Kind(2, (1, 20), "member"),
    "wall clock jumps": Kind(2, (1, 10), "member"),
    "kill broker": Kind(2, (0.5, 8), "broker"),
    "kill coordinator": Kind(3, (0.5, 8), "broker"),
    "stop broker": Kind(1, (0.5, 8), "broker"),
    "freeze broker": Kind(2, (0.3, 8), "broker"),
    "freeze coordinator": Kind(3, (0.3, 8), "broker"),
    "slow broker": Kind(3, (2, 10), "broker"),
    "leaders move back": Kind(2, (0, 0), "broker"),
    "cut off from one broker": Kind(3, (0.5, 14), "link"),
    "cut off from all brokers": Kind(3, (0.5, 14), "link"),
    "requests do not arrive": Kind(2, (0.5, 14), "link"),
    "answers do not arrive": Kind(3, (0.5, 14), "link"),
    "connections reset": Kind(2, (0.1, 4), "link"),
    "half open, broker gone": Kind(3, (0, 0), "link"),
    "half open, member gone": Kind(2, (0, 0), "link"),
    "delay": Kind(3, (2, 12), "link"),
    "loss": Kind(3, (2, 12), "link"),
    "interface down": Kind(2, (0.5, 14), "link"),
    "topic grows": Kind(2, (0, 0), "topic"),
    "topic starts": Kind(1, (0, 0), "topic"),
    "topic closes": Kind(1, (0, 0), "topic"),
}


@frozen(kw_only=True)
class Fault:
    """One fault; the run chooses its target by a number, and `size` from 0 to 1 is its strength."""

    at_s: float
    kind: str
    seconds: float
    target: int
    size: float


# The broker assigns in a group of `group.protocol=consumer`: no member leads, none hands over.
_OF_LEADERS = {"kill group leader", "freeze group leader", "hand over member"}


@frozen(kw_only=True)
class Group:
    """The group of a run: names and options; by member, an identity, a commit style, and a front.

    At rest, the shares of two members differ by `difference_max` partitions at most. A group of
    the protocol "consumer" has no policy and no assignor.
    """

    protocol: str
    policy: dict[str, object]
    assignor: dict[str, object]
    identities: tuple[str, ...]
    commits: tuple[str, ...]
    fronts: tuple[str, ...]
    difference_max: int


def draw(
    seed: int, seconds: float, *, network: bool, protocol: str = "classic"
) -> tuple[Fault, ...]:
    """Draw the faults of a run; without a network, the kinds "link" are left out."""
    random = Random(f"faults {seed}")
    names = [name for name, kind in KINDS.items() if network or kind.on != "link"]
    if protocol == "consumer":
        names = [name for name in names if name not in _OF_LEADERS]
    weights = [KINDS[name].weight for name in names]
    faults = []
    at_s = random.uniform(*GAP_S)
    while at_s < seconds:
        kind = random.choices(names, weights)[0]
        low, high = KINDS[kind].seconds
        faults.append(
            Fault(
                at_s=round(at_s, 3),
                kind=kind,
                # Squared: most faults are short, so that they overlap with recoveries.
                seconds=round(low + (high - low) * random.random() ** 2, 3),
                target=random.randrange(1_000_000),
                size=round(random.random(), 3),
            )
        )
        at_s += random.uniform(*GAP_S)
    return tuple(faults)


def draw_group(seed: int, protocol: str = "classic") -> Group:
    """Draw policy, assignor, identities, commit styles and fronts of a run's members.

    Six consecutive seeds give all combinations of policy and assignor, so a few runs are enough.
    """
    random = Random(f"group {seed}")
    wait_ms = random.choice([2_000, 5_000, 9_000])
    policies: list[dict[str, object]] = [
        {"name": "simple"},
        {"name": "deferred", "scheduled_rebalance_timeout_ms": wait_ms},
        {
            "name": "incremental",
            "scheduled_rebalance_timeout_ms": wait_ms,
            "max_moves_per_round": random.choice([1, 3, 6]),
            "move_interval_ms": random.choice([0, 500, 1_000]),
        },
    ]
    assignors: list[dict[str, object]] = [
        {"name": "lag-aware", "scope": "group"},
        {"name": "sticky"},
    ]
    identities = ["static", "static", "kept", "kept", "none", "none"]
    random.shuffle(identities)
    has_leader = protocol == "classic"
    return Group(
        protocol=protocol,
        policy=policies[seed % 3] if has_leader else {},
        assignor=assignors[seed // 3 % 2] if has_leader else {},
        identities=tuple(identities),
        commits=tuple(random.choice(["sync", "async", "auto"]) for _ in range(MEMBERS)),
        fronts=tuple(random.choice(["poll", "poll", "asyncio", "process"]) for _ in range(MEMBERS)),
        difference_max=1,
    )
