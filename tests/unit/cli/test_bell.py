"""`coopgroup bell create` without a cluster; with one, see tests/broker/test_bell.py."""

import pytest

from coopgroup.cli import app

NOWHERE = ("--bootstrap-server", "127.0.0.1:1", "--timeout-ms", "300")


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (("--topic", "a bell"), 2, "--topic: got 'a bell', expected a name of 1 to 249"),
        (("--config", "acks"), 2, "expected KEY=VALUE"),
        (("--config", "no.such.key=1"), 2, "no such key"),
        ((), 1, "coopgroup-bell is not created: "),
    ],
)
def test_refusal_is_one_line(
    arguments: tuple[str, ...], status: int, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["bell", "create", *arguments, *NOWHERE]) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert complaint in printed.err
    assert printed.err.count("\n") == 1
