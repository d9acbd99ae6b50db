"""`key_lines`: the line number of each key and list item of a TOML document.

Python's reader returns values without their positions. This file finds the positions, in a document
that Python's reader has accepted. It reads keys, headers, lists and inline tables, and skips the
content of strings and comments. Nothing is checked, because the document is known to be valid.

A path is a tuple of keys and of list indices, counted from 0: `("events", 2, "at_ms")`.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Mapping
from typing import Final, TypeAlias

from attrs import define, field

__all__ = ["key_lines"]

_Path: TypeAlias = tuple[str | int, ...]

_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE: Final = re.compile(r"[ \t]*")
_STRING: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'  # up to two quotes may precede the closing three
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'",
    re.DOTALL,
)
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE: Final = re.compile(r"[^,\]}\n#]*")


def key_lines(text: str) -> Mapping[_Path, int]:
    """Return the line of every key and of every list item.

    Args:
        text: a document that `tomllib` reads.

    Returns:
        Line, counted from 1, by path. A table without a header has the line of its first key.
    """
    scanner = _Scanner(text=text)
    scanner.scan_document()
    return scanner.lines


@define(kw_only=True)
class _Scanner:
    """Reads a document once, from start to end.

    Attributes:
        text: the document.
        place: position of the next character.
        lines: the result so far.
    """

    text: str
    place: int = 0
    lines: dict[_Path, int] = field(factory=dict)
    _line_starts: list[int] = field(init=False)
    _tables: dict[_Path, int] = field(factory=dict)  # number of tables in each list of tables

    def __attrs_post_init__(self) -> None:
        """Find where lines start."""
        self._line_starts = [0, *(found.end() for found in re.finditer("\n", self.text))]

    def scan_document(self) -> None:
        """Read headers and the keys below them."""
        table: _Path = ()
        self._skip(_BLANK)
        while self.place < len(self.text):
            if self.text[self.place] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BLANK)

    def _header(self) -> _Path:
        """Read `[a.b]` or `[[a.b]]` and return the path of the table."""
        begin = self.place
        is_list = self.text.startswith("[[", self.place)
        self.place += 2 if is_list else 1
        path: _Path = ()
        keys = self._keys()
        for number, key in enumerate(keys, start=1):
            path = (*path, key)
            self._note(path, begin)
            if is_list and number == len(keys):
                self._tables[path] = self._tables.get(path, 0) + 1
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
                self._note(path, begin)
        self.place += 2 if is_list else 1
        return path

    def _pair(self, table: _Path) -> None:
        """Read `key = value`."""
        begin = self.place
        path = table
        for key in self._keys():
            path = (*path, key)
            self._note(path, begin)
        self.place += 1  # the equals sign
        self._value(path)

    def _keys(self) -> list[str]:
        """Read a key, dotted or not, and the space around it."""
        keys: list[str] = []
        while True:
            self._skip(_SPACE)
            quoted = _STRING.match(self.text, self.place)
            if quoted is not None:
                self.place = quoted.end()
                keys.append(tomllib.loads(f"key = {quoted.group()}")["key"])
            else:
                begin = self.place
                self._skip(_BARE_KEY)
                keys.append(self.text[begin : self.place])
            self._skip(_SPACE)
            if not self.text.startswith(".", self.place):
                return keys
            self.place += 1

    def _value(self, path: _Path) -> None:
        self._skip(_SPACE)
        if self.text.startswith("[", self.place):
            self._list(path)
        elif self.text.startswith("{", self.place):
            self._inline_table(path)
        elif _STRING.match(self.text, self.place):
            self._skip(_STRING)
        else:
            self._skip(_BARE_VALUE)

    def _list(self, path: _Path) -> None:
        self.place += 1
        number = 0
        self._skip(_BLANK)
        while not self.text.startswith("]", self.place):
            self._note((*path, number), self.place)
            self._value((*path, number))
            number += 1
            self._skip_comma()
        self.place += 1

    def _inline_table(self, path: _Path) -> None:
        self.place += 1
        self._skip(_BLANK)
        while not self.text.startswith("}", self.place):
            self._pair(path)
            self._skip_comma()
        self.place += 1

    def _skip_comma(self) -> None:
        self._skip(_BLANK)
        if self.text.startswith(",", self.place):
            self.place += 1
            self._skip(_BLANK)

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.place)
        if found is not None:
            self.place = found.end()

    def _note(self, path: _Path, place: int) -> None:
        self.lines.setdefault(path, bisect_right(self._line_starts, place))
