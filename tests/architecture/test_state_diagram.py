"""The documented state diagram is that of the member."""

from docs.make_state_diagram import DIAGRAM, PAGE, diagram, page


def test_state_diagram_is_fresh() -> None:
    """If this fails: python docs/make_state_diagram.py."""
    assert DIAGRAM.read_text() == diagram()
    assert PAGE.read_text() == page(PAGE.read_text())
