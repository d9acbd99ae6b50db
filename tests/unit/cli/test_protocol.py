"""`coopgroup protocol` as a command: one answer per item, and the exit status."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import IO

import pytest

from coopgroup.cli.app import run

EMPTY_ASSIGNMENT = "000200000000ffffffff00000000"
EMPTY_ROW = (
    '{"assigned":{},"revoked":null,"scheduled_rebalance_timeout_ms":0,'
    '"user_data_hex":null,"version":2}'
)


def feed(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["decode", "--kind", "assignment", EMPTY_ASSIGNMENT], EMPTY_ROW),
        (["encode", "--kind", "assignment", EMPTY_ROW], EMPTY_ASSIGNMENT),
        (
            ["decode", "--kind", "assignment", "--dialect", "kafka", EMPTY_ASSIGNMENT],
            EMPTY_ROW.replace('_ms":0', '_ms":null'),
        ),
        (
            ["encode", "--dialect", "kafka", "--kind", "assignment", '{"assigned":{"é":[0]}}'],
            "0003000000010002c3a90000000100000000ffffffff",
        ),
        (
            ["encode", "--kind", "subscription", '{"topics":["a"],"version":0}'],
            "000000000001000161ffffffff",
        ),
    ],
)
def test_command_when_item_is_right_prints_its_translation(
    arguments: list[str], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["protocol", *arguments]) == 0
    assert capsys.readouterr() == (answer + "\n", "")


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (
            ["decode", "--kind", "assignment", "0002ff"],
            {"error": "assigned: 4 bytes needed, 1 left", "offset": 2},
        ),
        (["decode", "--kind", "assignment", "zz"], {"error": "'z' is no hex digit", "offset": 0}),
        (
            ["decode", "--kind", "assignment", ""],
            {"error": "version: 2 bytes needed, 0 left", "offset": 0},
        ),
        (
            ["encode", "--kind", "assignment", "{}"],
            {
                "error": "assigned: got nothing, expected a value, as this key is required",
                "offset": None,
            },
        ),
    ],
)
def test_command_when_item_is_wrong_prints_the_error_and_fails(
    arguments: list[str], answer: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["protocol", *arguments]) == 2
    captured = capsys.readouterr()
    assert (json.loads(captured.out), captured.err) == (answer, "")


def test_decode_when_reading_lines_answers_each_on_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [EMPTY_ASSIGNMENT.encode(), b"", b"\xff", b" " + EMPTY_ASSIGNMENT.encode() + b"\r"]
    feed(monkeypatch, b"\n".join(lines))
    assert run(["protocol", "decode", "--kind", "assignment", "-"]) == 2
    assert capsys.readouterr().out.splitlines() == [
        EMPTY_ROW,
        '{"error":"version: 2 bytes needed, 0 left","offset":0}',
        '{"error":"\'\\\\udcff\' is no hex digit","offset":0}',
        EMPTY_ROW,
    ]


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


@pytest.fixture
def decoder() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "coopgroup.cli", "protocol", "decode", "--kind", "assignment"]
    with subprocess.Popen(
        [*command, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        yield process
        process.kill()


def test_command_when_input_is_a_pipe_answers_before_the_next_line(
    decoder: subprocess.Popen[bytes],
) -> None:
    to_process, from_process = _pipe(decoder.stdin), _pipe(decoder.stdout)
    answers = []
    for _ in range(3):
        to_process.write(EMPTY_ASSIGNMENT.encode() + b"\n")
        to_process.flush()
        answers.append(from_process.readline().decode())
    to_process.close()
    assert (answers, decoder.wait(timeout=30)) == ([EMPTY_ROW + "\n"] * 3, 0)


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
