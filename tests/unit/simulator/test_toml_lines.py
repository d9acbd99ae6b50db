"""Lines of keys in a TOML document."""

import tomllib

import pytest

from coopgroup.simulator.toml_lines import key_lines

DOCUMENT = '''\
# "not = a key"
title = "a # b = c" # comment with = and [brackets]
text = """
inner = 1
""\\"quotes"""""
raw = \'\'\'
also = 2\'\'\'

[group]
"policy" = 'simple'
a.b = 1
a . "c.d" = 2

[topics.orders]
rates = [ # comment ]
  1, 2,

  3,
]
[topics."x y"]
partitions = 4

[[events]]
kind = "crash"
at = { ms = 1, more = { deep = [ { x = 1 }, 2 ] } }
[[events]]
at_ms = 1979-05-27T07:32:00Z
[[events.parts]]
n = 1
[[events.parts]]
n = inf
[events.last]
z = true'''


def test_keys_stand_where_a_reader_finds_them() -> None:
    """Strings and comments in between do not matter."""
    lines = key_lines(DOCUMENT)
    assert dict(lines) == {
        ("title",): 2,
        ("text",): 3,
        ("raw",): 6,
        ("group",): 9,
        ("group", "policy"): 10,
        ("group", "a"): 11,
        ("group", "a", "b"): 11,
        ("group", "a", "c.d"): 12,
        ("topics",): 14,
        ("topics", "orders"): 14,
        ("topics", "orders", "rates"): 15,
        ("topics", "orders", "rates", 0): 16,
        ("topics", "orders", "rates", 1): 16,
        ("topics", "orders", "rates", 2): 18,
        ("topics", "x y"): 20,
        ("topics", "x y", "partitions"): 21,
        ("events",): 23,
        ("events", 0): 23,
        ("events", 0, "kind"): 24,
        ("events", 0, "at"): 25,
        ("events", 0, "at", "ms"): 25,
        ("events", 0, "at", "more"): 25,
        ("events", 0, "at", "more", "deep"): 25,
        ("events", 0, "at", "more", "deep", 0): 25,
        ("events", 0, "at", "more", "deep", 0, "x"): 25,
        ("events", 0, "at", "more", "deep", 1): 25,
        ("events", 1): 26,
        ("events", 1, "at_ms"): 27,
        ("events", 1, "parts"): 28,
        ("events", 1, "parts", 0): 28,
        ("events", 1, "parts", 0, "n"): 29,
        ("events", 1, "parts", 1): 30,
        ("events", 1, "parts", 1, "n"): 31,
        ("events", 1, "last"): 32,
        ("events", 1, "last", "z"): 33,
    }


def paths_of(value: object, path: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    """Return every path that Python's parser found."""
    found = {path} if path else set()
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = list(enumerate(value))
    else:
        return found
    return found.union(*(paths_of(item, (*path, key)) for key, item in pairs))


@pytest.mark.parametrize(
    "document",
    [
        DOCUMENT,
        DOCUMENT.replace("\n", "\r\n"),
        "",
        "\n\n# nothing",
        "a = []\nb = {}\nc = [[1, 2], [], [[3]]]",
        "\"quoted \\\" key\" = 1\n'it''s' = 2".replace("''s", "s"),
        "a = '''x''''\nb = \"\"\"\\\"\"\"\"\nc = 3",
        "[a]\n[a.b]\nc = 1\n[d]\n",
        "x = [\n  'a]', # ]\n  \"b,\",\n]\ny = {z = '}'}",
    ],
)
def test_every_path_that_python_reads_has_a_line(document: str) -> None:
    """And no other path has a line."""
    assert set(key_lines(document)) == paths_of(tomllib.loads(document))
