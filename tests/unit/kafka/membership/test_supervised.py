"""What a member tells the supervisor of its process."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coopgroup.core.member import ErrorCode
from coopgroup.core.member.events import LeaveRequested
from coopgroup.core.model.group_api import FindCoordinatorAnswer
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.config.settings import read_settings
from coopgroup.kafka.membership import supervised as supervised_module
from coopgroup.kafka.membership.supervised import Supervision, supervision
from coopgroup.kafka.membership.telemetry_sink import TelemetrySink
from coopgroup.supervisor import VARIABLE
from tests.support.by_hand import Hand
from tests.support.programs import TIMEOUT_S
from tests.unit.kafka.fakes import LOST, FakeCoordinator
from tests.unit.kafka.one_member_group import SETTINGS, running, subscribe

PASSWORD = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "u",
    "sasl.password": "first",
}


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The supervisor's end of the socket."""
    inbox, outbox = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with inbox, outbox:
        inbox.settimeout(0)
        outbox.settimeout(0)
        inode = os.fstat(outbox.fileno()).st_ino
        monkeypatch.setenv(VARIABLE, f"{outbox.fileno()}:{inode}")
        yield inbox


def read(notes: socket.socket) -> list[dict[str, Any]]:
    found = []
    while True:
        try:
            found.append(json.loads(notes.recv(1 << 20)))
        except BlockingIOError:
            return found


def supervised(**more: object) -> Supervision | None:
    settings = read_settings(SETTINGS | {key.replace("_", "."): more[key] for key in more})
    return supervision(settings, TelemetrySink("g"))


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage().split()[0] for one in caplog.records]


def opened(**more: object) -> Supervision:
    found = supervised(**more)
    assert found is not None
    return found


def test_driver_tells_its_id_before_it_works_and_that_it_has_left(
    hand: Hand, notes: socket.socket
) -> None:
    with running(hand) as (driver, _):
        assert read(notes) == []
        subscribe(hand, driver)
        [joined] = read(notes)
        assert (joined["process"], joined["id"], joined["group"]) == (os.getpid(), "m", "g")
        assert (joined["returns"], joined["bell"]) == (False, None)
        assert joined["connection"]["bootstrap.servers"] == "127.0.0.1:1"
        hand.advance(1.0)
        assert read(notes) == []
        driver.post(LeaveRequested(reason="test", for_good=True))
        hand.run()
        [left] = read(notes)
        assert (left["member"], left["id"]) == (joined["member"], "")


def test_members_of_a_process_have_numbers_of_their_own(notes: socket.socket) -> None:
    for _ in range(2):
        opened().tell("m")
    first, second = read(notes)
    assert first["member"] != second["member"]


@pytest.mark.parametrize("key", ["group_instance_id", "coopgroup_state_dir"])
def test_identity_that_outlives_the_process_gives_no_password_away(
    notes: socket.socket, tmp_path: Path, key: str
) -> None:
    settings = read_settings(SETTINGS | PASSWORD | {key.replace("_", "."): str(tmp_path)})
    found = supervision(settings, TelemetrySink("g"))
    assert found is not None
    found.tell("m")
    [note] = read(notes)
    assert note["returns"]
    assert "first" not in json.dumps(note)


def test_new_password_is_told(notes: socket.socket) -> None:
    settings = read_settings(SETTINGS | PASSWORD)
    found = supervision(settings, TelemetrySink("g"))
    assert found is not None
    assert settings.connection.credentials is not None
    found.tell("m")
    settings.connection.credentials.replace("u", "second")
    found.tell("m")
    found.tell("m")
    passwords = [note["connection"]["sasl.password"] for note in read(notes)]
    assert passwords == ["first", "second"]


def test_slow_supervisor_is_told_later_and_never_waited_for(notes: socket.socket) -> None:
    found = opened()
    filled = 0
    while filled < 5_000:
        filled += 1
        found.tell(str(filled))
    told = [note["id"] for note in read(notes)]
    assert 0 < len(told) < filled
    found.tell(str(filled))
    assert [note["id"] for note in read(notes)] == [str(filled)]


def test_supervisor_that_is_gone_is_one_warning(
    notes: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    found = supervised()
    assert found is not None
    notes.close()
    for _ in range(2):
        found.tell("m")
    assert warned(caplog) == ["supervisor_unreachable"]


def test_without_a_supervisor_nothing_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert supervised() is None
    assert warned(caplog) == []


def test_number_of_another_file_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with (tmp_path / "data").open("w+") as data:
        inode = os.fstat(data.fileno()).st_ino
        for value in (f"{data.fileno()}:{inode}", "999999:1"):
            monkeypatch.setenv(VARIABLE, value)
            assert supervised() is None
    assert warned(caplog) == ["supervisor_unreachable"] * 2


def test_token_that_only_this_process_gets_is_a_warning(
    notes: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    settings = read_settings(
        SETTINGS
        | {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: ("token", 0.0),
        }
    )
    assert supervision(settings, TelemetrySink("g")) is None
    assert warned(caplog) == ["supervisor_cannot_leave"]
    assert read(notes) == []


def test_key_as_an_object_is_a_warning(
    notes: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    found = supervised()
    assert found is not None
    found._settings.librdkafka["ssl_key"] = object()  # type: ignore[index]  # noqa: SLF001
    found.tell("m")
    assert warned(caplog) == ["supervisor_cannot_leave"]
    assert read(notes) == []


@pytest.mark.parametrize("kind", ["file", "socket"])
def test_password_never_reaches_a_file_that_took_the_number(
    notes: socket.socket, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    found = supervised(**{key.replace(".", "_"): value for key, value in PASSWORD.items()})
    assert found is not None
    found.tell("first")
    assert len(read(notes)) == 1
    number = int(os.environ[VARIABLE].partition(":")[0])
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    there.settimeout(0)
    with here, there, (tmp_path / "data").open("w+b") as data:
        os.dup2(data.fileno() if kind == "file" else here.fileno(), number)
        for _ in range(2):
            found.tell("second")
        assert (tmp_path / "data").read_bytes() == b""
        assert read(there) == []
    assert warned(caplog) == ["supervisor_unreachable"]


def test_helper_leaves_for_a_member_although_it_cannot_for_others(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The brokers of `silent` do not answer until `m` has left."""
    has_left = threading.Event()

    def leave_for(note: dict[str, Any], _: float) -> None:
        if note["id"] == "silent":
            assert has_left.wait(TIMEOUT_S)
            raise ConfigurationError("x", "b:1", "brokers")
        if note["id"] == "odd":
            raise ValueError("no such mechanism")
        has_left.set()

    monkeypatch.setattr(supervised_module, "leave_for", leave_for)
    notes = [json.dumps({"group": "g", "id": one}).encode() for one in ("silent", "odd", "m")]
    assert supervised_module.main([b"garbage", *notes]) == 1
    lines = sorted(capfd.readouterr().err.splitlines())
    assert [line.removeprefix("coopgroup.supervisor: ") for line in lines] == [
        "cannot leave a member: JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "cannot leave group g for odd: ValueError: no such mechanism",
        "cannot leave group g for silent: x: got 'b:1', expected brokers",
        "left group g for m",
    ]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, r"^GROUP: .*COORDINATOR_NOT_AVAILABLE: usually"),
        (None, r"^bootstrap\.servers: .*brokers that answer \(gone\)"),
    ],
)
def test_helper_names_what_the_brokers_answer(
    monkeypatch: pytest.MonkeyPatch, hand: Hand, code: int | None, said: str
) -> None:
    coordinator = FakeCoordinator(
        override=lambda _: (
            LOST
            if code is None
            else FindCoordinatorAnswer(error_code=code, error_message="", coordinator=None)
        )
    )
    transport = SimpleNamespace(send=coordinator.send, start=lambda: None, close=lambda: None)
    monkeypatch.setattr(supervised_module, "GroupTransport", lambda *_: transport)
    note = {"connection": {"bootstrap.servers": "b:1"}, "group": "g", "id": "m", "bell": None}
    with pytest.raises(ConfigurationError, match=said):
        supervised_module.leave_for(note, hand.now_s + 1.0)


def test_helper_of_members_that_all_left_is_content(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervised_module, "leave_for", lambda *_: None)
    assert supervised_module.main([b'{"group": "g", "id": "m"}']) == 0
