"""docs/consumer.md describes every method."""

import re
from pathlib import Path

from confluent_kafka import Consumer

from coopgroup import CooperativeConsumer

PAGE = Path(__file__).parents[2] / "docs" / "consumer.md"
ROW = re.compile(
    r"^\| (`\w+`(?:, `\w+`)*) \| (same|different|refused|ours) \| (.*)\|$", re.MULTILINE
)


def test_page_goes_through_every_method() -> None:
    """Methods of confluent_kafka.Consumer and of coopgroup; differences are explained."""
    verdicts = {
        name: (verdict, bool(note.strip()))
        for names, verdict, note in ROW.findall(PAGE.read_text())
        for name in re.findall(r"`(\w+)`", names)
    }
    specials = {"__enter__", "__exit__"}
    theirs = {name for name in dir(Consumer) if not name.startswith("_")} | specials
    ours = {name for name in vars(CooperativeConsumer) if not name.startswith("_")}
    assert set(verdicts) == theirs | ours | {"__iter__"}
    of_ours = {name for name, (verdict, _) in verdicts.items() if verdict == "ours"}
    assert of_ours == (ours - theirs) | {"__iter__"}
    assert [name for name, (word, said) in verdicts.items() if word != "same" and not said] == []
