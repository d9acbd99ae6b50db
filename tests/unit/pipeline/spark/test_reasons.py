"""The cause of an error of Spark, without Spark."""

from __future__ import annotations

import pytest

from coopgroup.pipeline.spark.reasons import reason_of


class Throwable:
    """An exception of Java."""

    def __init__(self, name: str, message: str | None, cause: Throwable | None = None) -> None:
        self._text = name if message is None else f"{name}: {message}"
        self._message = message
        self._cause = cause

    def getMessage(self) -> str | None:  # noqa: N802 - Java's name
        return self._message

    def getCause(self) -> Throwable | None:  # noqa: N802 - likewise
        return self._cause

    def toString(self) -> str:  # noqa: N802 - likewise
        return self._text


class JavaError(Exception):
    """As Py4J reports an exception of Java."""

    def __init__(self, java: object) -> None:
        super().__init__("An error occurred while calling o6298.parquet.\n: org...\n\tat x.y")
        self.java_exception = java


def test_innermost_cause_is_told() -> None:
    root = Throwable("java.io.IOException", "No space left on device")
    middle = Throwable("org.apache.spark.SparkException", "[TASK_WRITE_FAILED] Task failed", root)
    assert reason_of(JavaError(middle)) == "java.io.IOException: No space left on device"


def test_cause_without_a_message_tells_less_than_what_it_caused() -> None:
    outer = Throwable("java.io.IOException", "disk", Throwable("java.lang.Error", None))
    assert reason_of(JavaError(outer)) == "java.io.IOException: disk"


def test_failed_python_is_told_by_the_last_line_of_its_traceback() -> None:
    text = (
        "Job aborted\nTraceback (most recent call last):\n"
        '  File "x.py", line 3, in f\n    g()\nValueError: no such group\n\tat org.apache.x'
    )
    assert reason_of(RuntimeError(text)) == "ValueError: no such group"


@pytest.mark.parametrize("gone", [None, object()])
def test_error_without_java_has_its_first_line(gone: object) -> None:
    """Also if the JVM does not answer any longer."""
    error = JavaError(gone)
    assert reason_of(error) == "An error occurred while calling o6298.parquet."
    assert reason_of(RuntimeError()) == "RuntimeError"
    assert len(reason_of(RuntimeError("x" * 9_999))) == 400
