"""Topics with no more partitions than subscribers: a member has at most one of each."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coopgroup.assignors.lag.one_per_member import place_singles

SIZE = 5


def _plain(lags: list[int], owner: list[int]) -> list[int]:
    """Assign one topic, partition by partition."""
    lags = [max(lag, 0) for lag in lags] if max(owner) >= 0 else lags
    places = sorted(range(len(lags)), key=lambda place: (-lags[place], place))
    holder = [-1] * len(lags)
    for place in places:
        if owner[place] >= 0 and owner[place] not in holder:
            holder[place] = owner[place]
    for place in places:
        if holder[place] < 0:
            holder[place] = min(set(range(SIZE)) - set(holder))
    return holder


partitions = st.lists(
    st.tuples(st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1), st.integers(-1, SIZE - 1)),
    min_size=1,
    max_size=SIZE,
)


@given(st.lists(partitions, min_size=1, max_size=6))
def test_topics_when_placed_together_are_placed_as_each_alone(
    topics: list[list[tuple[int, int]]],
) -> None:
    placed = place_singles(
        np.array([len(topic) for topic in topics]),
        np.array([lag for topic in topics for lag, _ in topic]),
        np.array([owner for topic in topics for _, owner in topic], dtype=np.int32),
        SIZE,
    )
    expected = [_plain(*map(list, zip(*topic, strict=True))) for topic in topics]
    assert placed.tolist() == [holder for topic in expected for holder in topic]
