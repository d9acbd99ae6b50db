"""A snapshot on standard output."""

import pytest
from attrs import evolve

from coopgroup.cli.watch_text import print_view
from tests.unit.watch.views import MEMBERS, view


def test_no_cell_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """A table of 80 columns would be read as if members had the same name."""
    name = "a-service-with-a-very-long-name-in-its-first-region-1"
    member = evolve(MEMBERS[0], client_id=name, host="a.very.long.name.of.a.host.example.org")
    print_view(view(members=(member, MEMBERS[1])))
    _, columns, row, *_ = capsys.readouterr().out.splitlines()
    assert columns.split()[:4] == ["member", "host", "partitions", "lag"]
    assert row.split()[:2] == [name, member.host]
