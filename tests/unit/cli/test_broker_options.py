"""`--config` of all commands: pairs, and files of pairs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from coopgroup.cli.app import app
from coopgroup.cli.broker_options import pairs
from coopgroup.errors import ConfigurationError


def test_pairs_stand_in_a_file_that_nobody_else_reads(tmp_path: Path) -> None:
    file = tmp_path / "broker.properties"
    file.write_text("# ours\n\nsasl.username = me\nsasl.password=a=b#c \n")
    assert pairs(["sasl.username=you", f"@{file}", "log_level=0"], "--config") == {
        "sasl.username": "me",
        "sasl.password": "a=b#c",
        "log_level": "0",
    }


@pytest.mark.parametrize(
    "content", [b"user=me\npass-word\n", b"user=me\n=pass-word\n", b"pass-word\xff"]
)
def test_a_file_without_pairs_is_named_and_not_shown(content: bytes, tmp_path: Path) -> None:
    """The message must not show a password that is in the wrong place."""
    file = tmp_path / "broker.properties"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"--config: got .@{file}") as caught:
        pairs([f"@{file}"], "--config")
    assert "pass-word" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="No such file"):
        pairs(["@none"], "--config")


def _commands(one: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, one
    if isinstance(one, click.Group):
        context = click.Context(one)
        for word in one.list_commands(context):
            inner = one.get_command(context, word)
            assert inner is not None
            yield from _commands(inner, f"{name} {word}")


def test_every_command_takes_a_file_as_its_configuration() -> None:
    """`ps` shows the arguments of a process to all users of the machine."""
    found = {
        name: option.metavar
        for name, one in _commands(app, "coopgroup")
        for option in one.params
        if "--config" in option.opts
    }
    assert {"coopgroup consume", "coopgroup watch", "coopgroup group migrate"} <= found.keys()
    assert set(found.values()) == {"KEY=VALUE|@FILE"}
