"""Recently read values: kept while there is room, and while they are used."""

from coopgroup.core.protocol.recent import RecentlyRead


def test_find_when_something_was_kept_gives_the_very_value() -> None:
    recent = RecentlyRead[list[int]](10)
    value = [1]
    recent.keep(b"ab", value, 2)
    assert recent.find(bytes(bytearray(b"ab"))) is value
    assert recent.find(b"a") is None


def test_keep_when_there_is_no_room_forgets_what_was_not_used() -> None:
    recent = RecentlyRead[int](10)
    for value, content in enumerate((b"a", b"b", b"c", b"d", b"e")):
        recent.keep(content, value, 1)
    recent.keep(b"f", 5, 1)
    assert recent.find(b"a") == 0
    for value, content in enumerate((b"g", b"h", b"i", b"j"), start=6):
        recent.keep(content, value, 1)
    assert (recent.find(b"a"), recent.find(b"b"), recent.find(b"j")) == (0, None, 9)


def test_keep_when_told_of_something_huge_keeps_what_it_has() -> None:
    recent = RecentlyRead[int](10)
    recent.keep(b"a", 0, 1)
    recent.keep(b"huge", 1, 6)
    assert (recent.find(b"a"), recent.find(b"huge")) == (0, None)


def test_keep_when_told_again_counts_it_once() -> None:
    recent = RecentlyRead[int](10)
    recent.keep(b"a", 0, 1)
    for value in range(20):
        recent.keep(b"b", value, 4)
    assert (recent.find(b"a"), recent.find(b"b")) == (0, 19)
