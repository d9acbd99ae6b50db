"""A snapshot on standard output."""

import uuid
from functools import partial

import pytest
from attrs import evolve
from rich.console import Console

from coopgroup.cli.watch import print_view
from tests.unit.watch.views import MEMBERS, view


def test_tables_fit_a_terminal_of_80_columns_and_no_name_is_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long name continues on the next line, and columns without values are left out."""
    terminal = partial(Console, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr("coopgroup.cli.watch.Console", terminal)
    client = "a-service-with-a-long-name-1"
    members = tuple(
        evolve(
            MEMBERS[0],
            member_id=f"{client}-{uuid.UUID(int=number << 100)}",
            client_id=client,
            host="ip-10-0-0-1.ec2.internal",
        )
        for number in (1, 2)
    )
    for is_told in (False, True):
        if is_told:
            members = tuple(evolve(one, since_poll_s=12.0, lease_s=44.0) for one in members)
        group = view(owners=(members[0].member_id, ""), committed=(1, 2), members=members)
        print_view(group)
        lines = capsys.readouterr().out.splitlines()[1:]
        assert max(map(len, lines)) <= 80
        assert ("lease" in lines[0]) is is_told
        end = next(place for place, line in enumerate(lines) if line.startswith("partition"))
        names = "".join(line[: lines[0].index("host")] for line in lines[1:end])
        assert "".join(names.split()) == "".join("".join(group.names.values()).split())
