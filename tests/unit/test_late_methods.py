"""Classes with late methods behave as those of attrs."""

from typing import Any

import attrs
import pytest

from coopgroup import late_methods


def _secret(value: object) -> str:
    return f"<{type(value).__name__}>"


def _classes(maker: Any) -> tuple[type, ...]:  # noqa: ANN401 (a module)
    """Return the same classes, made by attrs or by us."""

    @maker.frozen(kw_only=True)
    class Value:
        x: int
        y: object = attrs.field(default=(), eq=False)
        z: object = attrs.field(default=None, repr=_secret)
        hidden: int = attrs.field(default=0, repr=False)

    @maker.frozen
    class Empty:
        pass

    @maker.frozen(slots=False)
    class Inheriting(Value):
        more: int = 0

    @maker.frozen(eq=False)
    class Identity:
        x: int

    @maker.define
    class Changing:
        x: int
        y: object = None

    @maker.frozen
    class Own:
        x: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "own"

    return Value, Empty, Inheriting, Identity, Changing, Own


OURS = _classes(late_methods)
ATTRS = _classes(attrs)
ARGUMENTS: list[dict[str, Any]] = [
    {"x": 1},
    {"x": 2},
    {"x": 1, "y": 3},
    {"x": 1, "z": 3},
    {"x": 1, "hidden": 3},
    {"x": [1]},
    {"x": 1, "more": 5},
    {},
]


def _behaviour(kind: type) -> list[object]:
    """Return what its values are equal to, say and hash."""
    names = {one.name for one in attrs.fields(kind)}
    made = [kind(**one) for one in ARGUMENTS if one.keys() <= names and bool(one) == bool(names)]
    for one in made:
        assert one != 5
        assert all(_hashed(one) == _hashed(two) for two in made if one == two)
    return [
        [([a == b for b in made], [a != b for b in made], repr(a)) for a in made],
        [isinstance(_hashed(one), int) for one in made],
    ]


def _hashed(value: object) -> object:
    try:
        return hash(value)
    except TypeError as error:
        return str(error)


@pytest.mark.parametrize(("ours", "theirs"), list(zip(OURS, ATTRS, strict=True)))
def test_class_behaves_as_that_of_attrs(ours: type, theirs: type) -> None:
    for _ in range(2):  # the first use writes the method
        assert _behaviour(ours) == _behaviour(theirs)


def test_value_that_holds_itself_is_shown() -> None:
    changing = OURS[4](1)
    changing.y = [changing]
    assert repr(changing).endswith("Changing(x=1, y=[...])")
