"""`coopgroup pipeline advise`: errors before Spark starts."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from coopgroup.cli.pipeline.advise import command
from coopgroup.errors import ConfigurationError

NEEDED = ["--group", "g", "--tables", "t"]


@pytest.mark.parametrize("missing", ["--group", "--tables"])
def test_option_when_missing_is_asked_for(missing: str) -> None:
    given = ["--group", "g"] if missing == "--tables" else ["--tables", "t"]
    result = CliRunner().invoke(command, given)
    assert result.exit_code == 2
    assert missing in result.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lazy", "expected one of"),
        ("deferred:delay=3", "expected one of"),
        ("deferred:scheduled_rebalance_timeout_ms=soon", "an integer"),
        (":", "NAME"),
    ],
)
def test_policy_of_today_when_invalid_is_refused(text: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match="--today") as refused:
        CliRunner().invoke(command, [*NEEDED, "--today", text], catch_exceptions=False)
    assert expected in str(refused.value)


def test_page_when_it_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """The error must come before the replay, which takes long."""
    with pytest.raises(ConfigurationError, match="--html"):
        CliRunner().invoke(
            command, [*NEEDED, "--html", str(tmp_path / "no" / "page")], catch_exceptions=False
        )


def test_page_of_several_groups_is_refused(tmp_path: Path) -> None:
    given = [*NEEDED, "--group", "h", "--html", str(tmp_path / "page")]
    result = CliRunner().invoke(command, given)
    assert result.exit_code == 2
    assert "a page has one group" in result.stderr
