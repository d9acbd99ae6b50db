"""Render pages: one HTML file that needs no other file and no network.

The folder `templates` has the HTML, one template for each kind of page. Jinja2 escapes every value
that a template writes, except the figures and their scripts, which come from Bokeh as markup. This
file prepares what needs more than arithmetic: the order and the colours of a legend.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import frozen

from coopgroup.errors import ConfigurationError
from coopgroup.report.palette import DOUBLE, PLAIN, Paint, ranks
from coopgroup.report.wording import counted, seconds

if TYPE_CHECKING:
    from jinja2 import Environment

_CHIPS_MAX: Final = 40
_STRIPES: Final = {  # CSS that resembles Bokeh's patterns, for the legend
    "/": "repeating-linear-gradient(-45deg, {0} 0 3px, #fff 3px 4.5px)",
    "\\": "repeating-linear-gradient(45deg, {0} 0 3px, #fff 3px 4.5px)",
    "-": "repeating-linear-gradient(0deg, {0} 0 3px, #fff 3px 4.5px)",
    "|": "repeating-linear-gradient(90deg, {0} 0 3px, #fff 3px 4.5px)",
}
_DOTTED: Final = "radial-gradient(#fff 28%, {0} 32%) 0 0 / 5px 5px"


@frozen(kw_only=True)
class Objection:
    """A violation shown on the page.

    Attributes:
        at_ms: time in ms since the start.
    """

    source: str
    at_ms: int
    message: str


@frozen(kw_only=True)
class Figures:
    """Bokeh's figures as markup."""

    divs: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()


@frozen(kw_only=True)
class _Chip:
    label: str
    background: str
    owner: int | None = None


@frozen(kw_only=True)
class Legend:
    """The legend of a timeline.

    Attributes:
        chips: states without an owner, and the first owners in natural order of their names.
    """

    chips: tuple[_Chip, ...]
    more: int


@cache
def templates() -> Environment:
    """Return the templates of all pages."""
    from jinja2 import (  # noqa: PLC0415 - it comes with an extra
        Environment,
        PackageLoader,
        StrictUndefined,
    )

    found = Environment(
        loader=PackageLoader("coopgroup.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "counted": counted,
        "number": "{:,}".format,
        "seconds": seconds,
        "share": "{:.1%}".format,
    }
    return found


def write_page(path: str | Path, template: str, figures: Figures, **values: object) -> None:
    """Write a page.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    own = resources.files("coopgroup.report").joinpath("templates")
    text = (
        templates()
        .get_template(template)
        .render(
            values,
            style=own.joinpath("page.css").read_text("utf-8"),
            behaviour=own.joinpath("page.js").read_text("utf-8"),
            scripts=figures.scripts,
        )
    )
    try:
        # JSON strings can contain lone surrogates, which UTF-8 cannot encode.
        Path(path).write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ConfigurationError(
            "path", str(path), f"a file that can be written: {error.strerror}"
        ) from None


def legend_of(clients: Sequence[str], paint: Sequence[Paint]) -> Legend:
    """Return the legend for owners."""
    order = sorted(range(len(clients)), key=ranks(clients).__getitem__)
    # The page's script changes the colours of figures in dark mode, and its style those of chips.
    states = (
        ("var(--gap)", "nobody"),
        (DOUBLE, "two at once"),
        ("var(--unknown)", "not known yet"),
    )
    return Legend(
        chips=(
            *(_Chip(label=words, background=colour) for colour, words in states),
            *(
                _Chip(label=clients[owner], background=_background(paint[owner]), owner=owner)
                for owner in order[:_CHIPS_MAX]
            ),
        ),
        more=max(0, len(clients) - _CHIPS_MAX),
    )


def _background(paint: Paint) -> str:
    pattern = _STRIPES.get(paint.pattern, _DOTTED) if paint.pattern != PLAIN else "{0}"
    return pattern.format(paint.colour)
