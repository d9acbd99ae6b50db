"""A test of all cells of a matrix fails with the list of the broken ones."""

import inspect
import re
from itertools import product
from pathlib import Path

import pytest

from coopgroup.core.member import MemberState
from tests.support.for_each import for_each


def test_failure_lists_all_broken_cells_and_shows_the_first() -> None:
    @for_each("state, number", product(list(MemberState)[:2], [1, 20, 3]))
    def check(state: MemberState, number: int) -> None:
        assert number < 10, f"{number} is large"

    first, second = list(MemberState)[:2]
    with pytest.raises(AssertionError) as caught:
        check()
    lines = str(caught.value).splitlines()
    assert lines[0] == "2 of 6 cells are broken (state, number):"
    line = inspect.getsourcelines(check)[1] + 2
    assert [one.split(" is large")[0] for one in lines[1:]] == [
        f"  {first}, 20: line {line}: 20",
        f"  {second}, 20: line {line}: 20",
    ]
    assert "20 is large" in str(caught.value.__cause__)


def test_cell_is_broken_by_any_error_a_failure_or_a_skip() -> None:
    def skip() -> None:
        pytest.skip("no")

    def fail() -> None:
        with pytest.raises(KeyError):
            pass

    def divide() -> None:
        assert 1 / 0

    def work() -> None: ...

    @for_each("call", [skip, fail, divide, work], ids=["skip", "fail", "error", "none"])
    def check(call: object) -> None:
        assert callable(call)
        call()

    with pytest.raises(AssertionError) as caught:
        check()
    assert [re.sub(r"line [\d >]+: ", "", one) for one in str(caught.value).splitlines()[1:]] == [
        "  skip: Skipped: no",
        "  fail: Failed: DID NOT RAISE KeyError",
        "  error: ZeroDivisionError: division by zero",
    ]


@for_each("number", (one for one in (1, 2)))
def test_fixtures_reach_each_cell(tmp_path: Path, number: int) -> None:
    (tmp_path / str(number)).touch(exist_ok=False)
    assert len(list(tmp_path.iterdir())) == number


def test_cell_of_pytest_is_shown_by_its_id() -> None:
    @for_each("number", [pytest.param(1, id="one"), pytest.param(2, id="two"), 3])
    def check(number: int) -> None:
        assert number != 2

    with pytest.raises(
        AssertionError, match=r"(?m)1 of 3 cells .*\n  two: line \d+: assert 2 != 2"
    ):
        check()
    with pytest.raises(ValueError, match="a cell has no marks of its own"):
        for_each("number", [pytest.param(1, marks=pytest.mark.slow)])


def test_cell_whose_text_does_not_say_which_it_is_has_a_number() -> None:
    @for_each("text", ["a", "b", "a", "x" * 200])
    def check(text: str) -> None:
        pytest.fail("no")

    with pytest.raises(AssertionError) as caught:
        check()
    lines = str(caught.value).splitlines()[1:]
    assert [line.split(":")[0] for line in lines] == [
        "  #0 'a'",
        "  'b'",
        "  #2 'a'",
        f"  #3 '{'x' * 119}…",
    ]


def test_matrix_without_a_cell_or_for_another_test_is_an_error() -> None:
    with pytest.raises(ValueError, match="no cell for number"):
        for_each("number", [])
    with pytest.raises(TypeError, match="check does not take number"):

        @for_each("number", [1])
        def check(count: int) -> None: ...
