"""`reason_of`: the cause of an error of Spark, in one line.

Spark wraps a cause in several exceptions of Java, and Py4J wraps these in one of Python. The first
line of `str(error)` is often only "An error occurred while calling o6298.parquet". The innermost
exception says what happened. If Python code failed inside Spark, the cause is the last line of a
Python traceback in the message.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

__all__ = ["reason_of"]

_CAUSES_MAX: Final = 50
_LENGTH_MAX: Final = 400
_TRACEBACK: Final = "Traceback (most recent call last)"


def reason_of(error: BaseException) -> str:
    """Return the cause of an error of Spark or Py4J in one line."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    text = _innermost(java) if java is not None else ""
    line = _telling_line(text or str(error)) or type(error).__name__
    return line if len(line) <= _LENGTH_MAX else f"{line[: _LENGTH_MAX - 1]}…"


def _innermost(java: Any) -> str:  # noqa: ANN401 - an object of Java
    """Return the innermost exception of Java that has a message; "" if Java does not answer."""
    text = ""
    with suppress(Exception):  # the JVM may be gone
        for _ in range(_CAUSES_MAX):
            if java is None:
                break
            if java.getMessage() or not text:
                text = str(java.toString())
            java = java.getCause()
    return text


def _telling_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if any(_TRACEBACK in line for line in lines):
        begin = max(number for number, line in enumerate(lines) if _TRACEBACK in line)
        said = [line for line in lines[begin + 1 :] if not line.startswith(("at ", "File ", "^"))]
        # What follows the traceback is a stack of Java, or nothing.
        return said[-1] if said else lines[begin]
    return lines[0] if lines else ""
