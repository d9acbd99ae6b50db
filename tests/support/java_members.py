"""Members of Kafka's own Java client: one Java process for any number of tests."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from attrs import define, field

from coopgroup.testing.maven import fetch_kafka
from tests.support.ledger import Ledger

_SOURCE: Final = Path(__file__).parents[1] / "interop" / "java_members" / "Members.java"


@define(eq=False)
class JavaMembers:
    """The Java process; each member writes into the ledger of its group."""

    _process: subprocess.Popen[str]
    _ledgers: dict[str, Ledger] = field(factory=dict)
    ready: threading.Event = field(factory=threading.Event)

    def start(self, name: str, topic: str, settings: Mapping[str, str], ledger: Ledger) -> None:
        self._ledgers[name] = ledger
        self._say(f"start {name} {topic} " + " ".join(f"{k}={v}" for k, v in settings.items()))

    def stop(self, name: str) -> None:
        self._say(f"stop {name}")

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def listen(self) -> None:
        """Read the output of the process until it ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            name, *words = line.split()
            if name == "ready":
                self.ready.set()
            elif name in self._ledgers:
                write_down(self._ledgers[name], name, words)


def write_down(ledger: Ledger, name: str, words: list[str]) -> None:
    """Note what a member in another process has printed."""
    match words:
        case ["taken", nanos, numbers]:
            ledger.take(name, _numbers(numbers), int(nanos) / 1e9)
        case ["given" | "lost" as how, nanos, numbers]:
            ledger.give(name, _numbers(numbers), int(nanos) / 1e9, lost=how == "lost")
        case ["handed", nanos, *ranges]:
            for one in ranges:
                partition, _, offsets = one.partition(":")
                first, _, last = offsets.partition("-")
                records = range(int(first), int(last) + 1)
                ledger.hand(name, int(partition), records, int(nanos) / 1e9)
        case ["failed", message]:
            ledger.failed[name] = message
        case _:
            ledger.stopped.add(name)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


@contextmanager
def java_members() -> Iterator[JavaMembers]:
    java = shutil.which("java")
    assert java is not None
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [
                java,
                "-Xmx256m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                fetch_kafka().classpath,
                str(_SOURCE),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        members = JavaMembers(process)
        listener = threading.Thread(target=members.listen, daemon=True)
        listener.start()
        try:
            assert members.ready.wait(60), "the program of Java does not start"
            yield members
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(60)
            finally:
                process.kill()
            listener.join(60)
            assert process.stdout is not None
            process.stdout.close()
