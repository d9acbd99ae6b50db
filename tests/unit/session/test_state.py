"""A new session."""

import attrs
import pytest

from coopgroup.member import KeptIdentity
from coopgroup.session import OwedRound, new_session
from tests.support.members import CONFIG

NOW_MS = 10_000


@pytest.mark.parametrize(("led", "in_ms"), [(True, 700), (True, None), (False, 700)])
def test_session_of_the_next_process_knows_what_the_last_one_led(
    led: bool,
    in_ms: int | None,
) -> None:
    kept = KeptIdentity(member_id="m", generation=4, topics=("T",))
    config = attrs.evolve(CONFIG, keeps_identity=True)
    session = new_session(config, kept, led=led, next_round_in_ms=in_ms, now_ms=NOW_MS)
    assert session.member.identity.kept == kept
    assert session.leads_as == (("m", 4) if led else None)
    wanted = OwedRound(member_id="m", generation=4, at_ms=NOW_MS + 700)
    assert session.owed == (wanted if led and in_ms is not None else None)
    assert new_session(config, None, led=led, next_round_in_ms=in_ms).is_blank
