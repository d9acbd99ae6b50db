"""One test for all cells of a matrix: it tries each cell, and its failure lists all broken ones.

    @for_each("state, trigger", product(MemberState, Trigger))
    def test_move(state: MemberState, trigger: Trigger) -> None: ...

For cases that a program lists: all codes, all keys, all pairs. A short list that somebody wrote is
clearer with `pytest.mark.parametrize`. Fixtures are made once, for all cells.
"""

import inspect
from collections.abc import Callable, Iterable
from enum import Enum
from functools import wraps
from traceback import extract_tb
from typing import Any, Final

import pytest

SHOWN_MAX: Final = 120
REASON_MAX: Final = 400
CUT: Final = "…"
# Those of pytest derive from BaseException. A skipped cell counts, because it was not tried.
FAILURES: Final = (Exception, pytest.fail.Exception, pytest.skip.Exception)
PARAMETERS: Final = type(pytest.param())

Test = Callable[..., None]


def for_each(
    names: str, cells: Iterable[Any], ids: Iterable[str] | None = None
) -> Callable[[Test], Test]:
    """Return the decorator that gives a test the values of each cell under these names.

    A cell is a tuple of values if there are several names, otherwise the value. The failure shows
    its id, or else its values. `pytest.param` gives a cell its id.
    """
    parameters = [name.strip() for name in names.split(",")]
    given = list(cells)
    rows = [_values(cell, len(parameters)) for cell in given]
    shown = _numbered(list(map(_cell_shown, given, rows))) if ids is None else list(ids)
    if not rows:
        raise ValueError(f"no cell for {names}")

    def decorate(test: Test) -> Test:
        @wraps(test)
        def walk(**fixtures: Any) -> None:  # noqa: ANN401 - as pytest passes them
            broken: list[tuple[str, BaseException]] = []
            for cell, row in zip(shown, rows, strict=True):
                try:
                    test(**fixtures, **dict(zip(parameters, row, strict=True)))
                except FAILURES as error:
                    broken.append((f"{cell}: line {_line(test, error)}", error))
            if broken:
                head = f"{len(broken)} of {len(rows)} cells are broken ({', '.join(parameters)}):"
                lines = [f"  {cell}: {_reason(error)}" for cell, error in broken]
                raise AssertionError("\n".join([head, *lines])) from broken[0][1]

        signature = inspect.signature(test)
        own = [one for name, one in signature.parameters.items() if name not in parameters]
        if len(own) + len(parameters) != len(signature.parameters):
            raise TypeError(f"{test.__name__} does not take {names}")
        walk.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
        return walk

    return decorate


def _values(cell: Any, count: int) -> tuple[Any, ...]:  # noqa: ANN401 - as tests have them
    if isinstance(cell, PARAMETERS):
        if cell.marks:
            raise ValueError(f"a cell has no marks of its own: {cell}")
        return tuple(cell.values)
    return tuple(cell) if count > 1 else (cell,)


def _numbered(shown: list[str]) -> list[str]:
    """Put its number before each text that is cut or that other cells have, too."""
    return [
        f"#{number} {text}" if CUT in text or shown.count(text) > 1 else text
        for number, text in enumerate(shown)
    ]


def _cell_shown(cell: object, values: tuple[object, ...]) -> str:
    if isinstance(cell, PARAMETERS) and isinstance(cell.id, str):
        return cell.id
    return ", ".join(map(_shown, values))


def _shown(value: object) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    name = getattr(value, "__name__", None) or getattr(value, "name", None)
    return name if isinstance(name, str) else _cut(repr(value), SHOWN_MAX)


def _line(test: Test, error: BaseException) -> str:
    """Return the line of the test that failed, and the line of the function that it called."""
    file = inspect.getfile(test)
    lines = [one.lineno for one in extract_tb(error.__traceback__) if one.filename == file]
    return " > ".join(map(str, dict.fromkeys(lines)))


def _reason(error: BaseException) -> str:
    kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
    return kind + _cut(" ".join(str(error).split()), REASON_MAX)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}{CUT}"
