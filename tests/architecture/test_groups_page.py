"""docs/groups.md agrees with the configuration in the code."""

import re

from coopgroup.groups.settings import GROUP_KEYS, OWN_KEYS
from tests.architecture.tree import ROOT

PAGE = (ROOT / "docs" / "groups.md").read_text()


def test_page_lists_every_key_of_a_group_with_its_default() -> None:
    """In the order of the code."""
    rows = re.findall(r"^\| `(coopgroup\.[\w.]+)` \| (\d+) \|", PAGE, flags=re.MULTILINE)
    assert [(key, int(default)) for key, default in rows] == list(OWN_KEYS.items())


def test_page_names_every_key_that_it_shares_with_consumers() -> None:
    """In addition to the keys of connections."""
    section = PAGE.split("## Configuration")[1].split("| key |")[0]
    assert set(re.findall(r"`([a-z]+\.[\w.]+)`", section)) == set(GROUP_KEYS)
