"""The driver with the constants of macOS: its clock, its sockets, its locks."""

from pathlib import Path

from tests.support.programs import result_on_macos


def test_clock_is_the_monotonic_one_which_runs_on_while_a_mac_sleeps() -> None:
    assert result_on_macos("""
from coopgroup.kafka.clock import CLOCK, now_s
print(json.dumps(CLOCK == time.CLOCK_MONOTONIC and abs(now_s() - time.monotonic()) < 60))
""")


def test_silent_peer_is_noticed_by_keepalive_alone() -> None:
    found = result_on_macos("""
from coopgroup.kafka.config.connection_settings import read_connection_settings
settings = read_connection_settings({"bootstrap.servers": "a:1"}, dead_peer_ms=15_000)
print(json.dumps(settings.dead_peer_options))
""")
    assert [value for _, option, value in found if option == 0x10] == [5]
    assert len(found) == 4  # on, first probe, pace, number of probes


def test_identity_is_kept_and_locked(tmp_path: Path) -> None:
    program = """
from coopgroup.core.member import KeptIdentity
from coopgroup.kafka.membership.identity import take_slot
def warn(*_, **__):
    raise AssertionError
slot = take_slot(sys.argv[1], "g", warn)
before = None if slot.kept is None else slot.kept.member_id
slot.keep(KeptIdentity(member_id="m", generation=1, topics=("t",)))
second = take_slot(sys.argv[1], "g", warn)
print(json.dumps([before, second.kept is None]))
second.release()
slot.release()
"""
    assert result_on_macos(program, str(tmp_path)) == [None, True]
    assert result_on_macos(program, str(tmp_path)) == ["m", True]
