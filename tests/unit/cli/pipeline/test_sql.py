"""The answer to a query, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from coopgroup.cli.pipeline import sql


class Answer:
    """A frame with one row of one text."""

    columns = ("member",)
    dtypes = (("member", "string"),)

    def __init__(self, text: str | None) -> None:
        self.text = text

    def toDF(self, *_: str) -> Answer:  # noqa: N802 - Spark's name
        return self

    def __getitem__(self, _: str) -> Any:  # noqa: ANN401 - a column
        return SimpleNamespace(cast=lambda _: None)

    def select(self, *_: object) -> Answer:
        return self

    def limit(self, _: int) -> Answer:
        return self

    def collect(self) -> list[tuple[str | None]]:
        return [(self.text,)]


@pytest.mark.parametrize(
    ("text", "shown"), [("a\x1b[2Jb", "a\N{REPLACEMENT CHARACTER}[2Jb"), ("[red]", "[red]")]
)
def test_name_of_a_member_is_neither_markup_nor_a_command_of_the_terminal(
    text: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer: Any = Answer(text)
    sql._print(answer)  # noqa: SLF001 - the command needs Spark
    said = capsys.readouterr().out
    assert shown in said
    assert "\x1b" not in said
