"""A reader of a page: saves its programs, starts them, and compares their output with the page's.

A block marked `python NAME.py` is a program of that name. Lines of members, such as
`m1 gains [0, 1]`, are what the programs print.
"""

import os
import re
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from markdown_it import MarkdownIt

WAIT_S = 60


class Reader:
    """A folder with the programs of a page.

    Attributes:
        lines: what the programs have printed, and `expect` has not returned yet.
    """

    def __init__(self, page: Path, folder: Path) -> None:
        self.page = page
        self.folder = folder
        self.cleanup = ExitStack()
        self.lines: list[str] = []
        for token in MarkdownIt().parse(page.read_text()):
            kind, _, name = token.info.partition(" ")
            if kind == "python" and name.endswith(".py"):
                (folder / name).write_text(token.content)

    def shown(self, section: str) -> list[str]:
        """Return the lines of members in a section of the page, sorted."""
        text = self.page.read_text().partition(f"## {section}\n")[2].partition("\n## ")[0]
        return sorted(re.findall(r"^[mw]\d [a-z].*$", text, re.MULTILINE))

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a program of the page; options of the running pytest are not its options."""
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=self.folder,
            env={name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        reader = threading.Thread(target=self._collect, args=(process,))
        reader.start()
        self.cleanup.callback(reader.join)
        self.cleanup.callback(process.wait)
        self.cleanup.callback(process.kill)
        if process.stdin is not None:
            self.cleanup.callback(process.stdin.close)
        return process

    def _collect(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self.lines.append(line.rstrip("\n"))

    def expect(self, count: int) -> list[str]:
        """Wait for the next `count` lines and return them, sorted."""
        deadline = time.monotonic() + WAIT_S
        while len(self.lines) < count:
            assert time.monotonic() < deadline, self.lines
            time.sleep(0.05)
        found = self.lines[:count]
        del self.lines[:count]
        return sorted(found)
