"""Short names of members."""

import attrs

from coopgroup.report.history.names import named, short_names
from coopgroup.telemetry import Envelope, Record, RoundDecided, RoundRefused, StateChanged

UUID = "5c0f3b1e-8f6f-4d9c-a0b1-0123456789ab"
OTHER = "5c0fffff-8f6f-4d9c-a0b1-0123456789ab"
THIRD = "aaaaaaaa-8f6f-4d9c-a0b1-0123456789ab"


def wrote(member: str, record: Record, client: str = "") -> Envelope:
    return Envelope(at_ms=1, group="g", member=member, generation=1, record=record, client=client)


def test_members_of_one_client_id_get_as_many_digits_as_tell_them_apart() -> None:
    assert list(short_names([f"a-{UUID}", f"a-{THIRD}"]).values()) == ["a 5c0f", "a aaaa"]
    assert list(short_names([f"a-{UUID}", f"a-{OTHER}"]).values()) == ["a 5c0f3b1e", "a 5c0fffff"]


def test_ids_of_another_form_stay_as_they_are() -> None:
    names = short_names(["m-1", "", f"-{UUID}", "a", f"a-{UUID}"])
    assert names["m-1"] == "m-1"
    assert names[f"-{UUID}"] == f"-{UUID}"
    assert {names["a"], names[f"a-{UUID}"]} == {"a", "a 5c0f"}


def test_members_without_a_file_and_sentences_with_ids_get_names_too() -> None:
    silent = f"b-{OTHER}"
    records = [
        wrote(f"a-{UUID}", RoundDecided(policy="p", assignor="s", members=(f"a-{UUID}", silent))),
        wrote(f"a-{UUID}", RoundRefused(violations=(f"{silent} claims t 0 twice",))),
        wrote("c-id", StateChanged(before="a", after="b", cause="c"), client="c"),
    ]
    found, names = named(records)
    assert [one.client for one in found] == ["a", "a", "c"]
    assert names == {f"a-{UUID}": "a", silent: "b", "c-id": "c"}
    assert found[1].record == RoundRefused(violations=("b claims t 0 twice",))


def test_processes_of_one_client_id_at_the_same_time_get_names_of_their_own() -> None:
    """The default of `client.id` is the host name, and a host can run several members."""
    state = StateChanged(before="a", after="b", cause="c")
    one, other = f"host-{UUID}", f"host-{THIRD}"
    records = [wrote(member, state, client="host") for member in (one, other, one)]
    found, names = named([attrs.evolve(each, at_ms=at) for at, each in enumerate(records)])
    assert [each.client for each in found] == ["host 5c0f", "host aaaa", "host 5c0f"]
    assert names == {one: "host 5c0f", other: "host aaaa"}


def test_process_that_returns_under_its_client_id_keeps_its_name() -> None:
    state = StateChanged(before="a", after="b", cause="c")
    records = [wrote(member, state, client="host") for member in (f"host-{UUID}", f"host-{THIRD}")]
    found, _ = named([attrs.evolve(each, at_ms=at) for at, each in enumerate(records)])
    assert [each.client for each in found] == ["host", "host"]
