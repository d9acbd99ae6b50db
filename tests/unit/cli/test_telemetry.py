"""`coopgroup telemetry` without a cluster; with one, see tests/broker/test_telemetry_topic.py."""

import pytest

from coopgroup.cli import app

NOWHERE = ("--bootstrap-server", "127.0.0.1:1", "--timeout-ms", "300")


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (("create", "--topic", "a b"), 2, "--topic: got 'a b', expected a name of 1 to 249"),
        (("create", "--retention-days", "0"), 2, "--retention-days"),
        (("create",), 1, "coopgroup-telemetry is not created: "),
        (("read", "--config", "no.such.key=1"), 2, "no such key"),
        (("read", "--minutes", "0"), 2, "--minutes"),
        (("read",), 2, "topic: got 'coopgroup-telemetry', expected a topic that can be read"),
    ],
)
def test_refusal_is_one_line(
    arguments: tuple[str, ...], status: int, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["telemetry", *arguments, *NOWHERE]) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert complaint in printed.err
    assert printed.err.count("\n") == 1
