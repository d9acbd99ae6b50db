"""Assignors by name."""

from tests.support.programs import outputs_under_two_hash_seeds


def test_targets_when_made_under_two_hash_seeds_are_the_same() -> None:
    program = (
        "import numpy as np\n"
        "from coopgroup.assignors import assignor_names, create_assignor\n"
        "from coopgroup.core.model import MemberClaim, ResourceSet, resolve_claims\n"
        "topics = {f'topic-{n}' for n in range(9)}\n"
        "def claim(m):\n"
        "    own = ResourceSet({'topic-' + m: [1, 2], 'topic-7': [1]})\n"
        "    names = tuple(sorted(t for t in topics if t[-1] != m))\n"
        "    return MemberClaim(member_id=m, topics=names, owned=own)\n"
        "existing = ResourceSet({t: range(5) for t in topics})\n"
        "group = resolve_claims([claim(m) for m in set('0123456')], existing)\n"
        "for name in assignor_names():\n"
        "    target = create_assignor(name).assign(group, np.arange(len(group.resources)) % 4)\n"
        "    print(name, target.tolist())\n"
    )
    assert len(outputs_under_two_hash_seeds(program)) == 1
