"""`coopgroup protocol` as a command: one answer per item, and the exit status."""

import io
import sys

import pytest

from coopgroup.cli.app import run

EMPTY_ASSIGNMENT = "000100000000" + "ff" * 12 + "00000000" + "ff" * 16
EMPTY_ROW = (
    '{"assigned":{},"loss_ends_in_ms":null,"rejoin_in_ms":null,"revoked":null,'
    '"shared_digest":null,"topics_digest":null,"version":1,"warmups":{}}'
)
TOPIC_A = "000000000001000161ffffffff"
NOTHING = '{"error":"version: 2 bytes needed, 0 left","offset":0}'


def feed(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.mark.parametrize(
    ("options", "item", "status", "answer"),
    [
        ("decode --kind assignment", EMPTY_ASSIGNMENT, 0, EMPTY_ROW),
        ("encode --kind assignment", EMPTY_ROW, 0, EMPTY_ASSIGNMENT),
        (
            "decode --kind assignment --dialect kafka",
            EMPTY_ASSIGNMENT,
            0,
            '{"assigned":{},"user_data_hex":null,"version":1}',
        ),
        (
            "encode --dialect kafka --kind assignment",
            '{"assigned":{"é":[0]}}',
            0,
            "0003000000010002c3a90000000100000000ffffffff",
        ),
        ("encode --kind subscription", '{"topics":["a"],"version":0}', 0, TOPIC_A),
        (
            "decode --kind assignment",
            "0001ff",
            2,
            '{"error":"assigned: 4 bytes needed, 1 left","offset":2}',
        ),
        ("decode --kind assignment", "zz", 2, '{"error":"\'z\' is no hex digit","offset":0}'),
        ("decode --kind assignment", "", 2, NOTHING),
    ],
)
def test_item_is_answered_on_one_line(
    options: str, item: str, status: int, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["protocol", *options.split(), item]) == status
    assert capsys.readouterr() == (f"{answer}\n", "")


def test_encode_when_reading_lines_answers_each_on_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(monkeypatch, b'{"assigned":{"\xff":[0]}}\nnull\n' + EMPTY_ROW.encode() + b"\n")
    assert run(["protocol", "encode", "--kind", "assignment", "-"]) == 2
    assert capsys.readouterr().out.splitlines() == [
        '{"error":"message: got b\'\\\\xff\', expected UTF-8 (byte 14)","offset":null}',
        '{"error":"message: got null, expected one JSON object","offset":null}',
        EMPTY_ASSIGNMENT,
    ]
