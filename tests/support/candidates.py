"""Processes that compete for a leadership and note when each of them leads.

As a program (`python -m tests.support.candidates CONFIGURATION LOG`) it is one candidate. While it
leads, it writes a line every few milliseconds, until its standard input ends. The time of a line is
read before the leadership is checked: after a pause in between, the check is newer than the time.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

from attrs import define, field

from coopgroup import Leadership
from coopgroup.kafka.clock import now_s

__all__ = ["Candidate", "Term", "terms_of"]

_STEP_S = 0.005
_PATIENCE_S = 30.0


@define(frozen=True)
class Term:
    """One leadership of a process.

    Attributes:
        token: its fencing token.
        first_s: when it was first known to lead, on the clock of the machine.
        last_s: when it was last known to lead.
    """

    token: int
    who: str
    first_s: float
    last_s: float


@define(eq=False)
class Candidate:
    """A process that competes."""

    name: str
    log_path: Path
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self, configuration: dict[str, object]) -> None:
        arguments = [json.dumps({**configuration, "client.id": self.name}), str(self.log_path)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.candidates", *arguments], stdin=subprocess.PIPE
        )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal that kills, freezes or resumes the process."""
        self.process.send_signal(number)

    def end(self) -> None:
        """Let the process resign and end, if it still can."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(_PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()

    def lines(self) -> list[tuple[float, int]]:
        """Return (time, token) of each moment in which it led, whole lines only."""
        if not self.log_path.exists():
            return []
        rows = self.log_path.read_text().split("\n")[:-1]
        return [(float(row.split()[0]), int(row.split()[1])) for row in rows]


def terms_of(candidates: list[Candidate]) -> list[Term]:
    """Return the terms, ascending by token; each token belongs to one process."""
    found: dict[int, Term] = {}
    for candidate in candidates:
        for at_s, token in candidate.lines():
            before = found.get(token)
            first_s = at_s if before is None else before.first_s
            assert before is None or before.who == candidate.name, f"two leaders with {token}"
            found[token] = Term(token, candidate.name, first_s, at_s)
    return [found[token] for token in sorted(found)]


def main() -> None:
    """Compete until the standard input ends."""
    configuration, log_path = json.loads(sys.argv[1]), Path(sys.argv[2])
    ended = threading.Event()

    def read_to_the_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=read_to_the_end, daemon=True).start()
    with Leadership(configuration) as leadership, log_path.open("a", buffering=1) as log:
        while not ended.wait(_STEP_S):
            at_s = now_s()
            token = leadership.token
            if token is not None:
                log.write(f"{at_s:.6f} {token}\n")


if __name__ == "__main__":
    main()
