"""The text of an exception, for a header, a log and a message: always short, always encodable.

Exceptions come from the application. A text may quote a whole record, have characters that UTF-8
cannot encode, or raise an exception itself. None of these may stop processing.
"""

from __future__ import annotations

from collections.abc import Callable

_BYTES_MAX = 4_000
_MORE = "…"


def error_text(
    error: BaseException,
    bytes_max: int = _BYTES_MAX,
    text_of: Callable[[BaseException], str] = repr,
) -> str:
    """Return the text of an exception, cut to a number of bytes of UTF-8."""
    try:
        text = text_of(error)
    except Exception as other:  # noqa: BLE001  (the application's own)
        text = f"{type(error).__name__}, whose text raises {type(other).__name__}"
    encoded = text[: bytes_max + 1].encode("utf-8", "backslashreplace")
    if len(encoded) > bytes_max:
        cut = encoded[: bytes_max - len(_MORE.encode())]
        return cut.decode("utf-8", "ignore") + _MORE
    return encoded.decode()


def type_and_text(error: BaseException) -> str:
    """Return the name of the type and the text, as the last line of a traceback has them."""
    name, text = type(error).__name__, str(error)
    return f"{name}: {text}" if text else name
