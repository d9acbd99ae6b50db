"""The delay that a leader announced, as the member tells it to a new leader."""

import pytest

from coopgroup.core.member.parts import Delay


@pytest.mark.parametrize(
    ("delay", "told"),
    [
        (Delay(), (None, None)),
        (Delay(rejoin_at_ms=150, loss_until_ms=150), (50, 50)),
        (Delay(rejoin_at_ms=150), (50, None)),
        (Delay(rejoin_at_ms=50, loss_until_ms=50), (0, 0)),
        (Delay(rejoin_at_ms=50, loss_until_ms=60), (0, 1)),  # moves have begun
    ],
)
def test_the_end_of_a_loss_tells_whether_moves_have_begun(
    delay: Delay, told: tuple[int | None, int | None]
) -> None:
    assert (delay.rejoin_in_ms(100), delay.loss_ends_in_ms(100)) == told
