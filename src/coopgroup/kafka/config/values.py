"""Values of a configuration, read as the table of keys says, and refusals of wrong ones.

Rule of this file: a wrong value is a `ConfigurationError` that names the key and the allowed
values.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

from coopgroup.core.model.traits import Traits, checked_traits, traits_of_text
from coopgroup.kafka.config.keys import (
    CONNECTION_FAMILIES,
    CONSUMER_KEYS,
    KEYS,
    Callback,
    Choice,
    Text,
    Topic,
    Verdict,
    Whole,
)
from coopgroup.kafka.config.shown_values import refused
from coopgroup.kafka.records.partitions import TOPIC_NAME_RULE, is_topic_name

_Kind = TypeVar("_Kind")
_SHOWN_MAX: Final = 100
_NOT_HONOURED: Final = "a connection setting that coopgroup knows"
_OWN_KEYS: Final = sorted(key for key in CONSUMER_KEYS if key.startswith("coopgroup."))
# Below this, two names are hardly the same one with a slip.
_LIKENESS: Final = 0.8


def text(value: object) -> str:
    """Return a value as librdkafka spells it."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def choice(configuration: Mapping[str, Any], key: str) -> str:
    """Return the meaning of one of the allowed words."""
    kind = _kind(key, Choice)
    value = configuration.get(key, KEYS[key].default)
    meaning = kind.words.get(text(value).lower())
    if meaning is None:
        raise refused(key, value, kind.expected)
    return meaning


def switch(configuration: Mapping[str, Any], key: str) -> bool:
    """Return a switch."""
    return choice(configuration, key) == "true"


def whole(configuration: Mapping[str, Any], key: str) -> int:
    """Return a whole number."""
    kind = _kind(key, Whole)
    value = configuration.get(key, KEYS[key].default)
    try:
        number = int(text(value))
    except ValueError:
        number = kind.low - 1
    if not kind.has(number):
        raise refused(key, value, kind.expected)
    return number


def given_text(configuration: Mapping[str, Any], key: str) -> str | None:
    """Return a string; None if it is empty or not given."""
    value = configuration.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise refused(key, value, "a string")
    if isinstance(KEYS[key].kind, Topic) and not is_topic_name(value):
        raise refused(key, value, TOPIC_NAME_RULE)
    return value


def read_traits(configuration: Mapping[str, Any], key: str) -> Traits:
    """Return the traits of a member, from an object or its JSON text; empty if not given."""
    value = configuration.get(key, {})
    try:
        return traits_of_text(value) if isinstance(value, str) else checked_traits(value)
    except ValueError as error:
        raise refused(key, value, str(error)) from None


def callback(configuration: Mapping[str, Any], key: str) -> Callable[..., Any] | None:
    """Return a callable; None if it is not given."""
    value = configuration.get(key)
    if value is not None and not callable(value):
        raise refused(key, value, "a callable")
    return value


def check_value(configuration: Mapping[str, Any], key: str) -> None:
    """Refuse a value that the key cannot have.

    Raises:
        ConfigurationError: the message names the allowed values.
    """
    match KEYS[key].kind:
        case Whole():
            whole(configuration, key)
        case Choice():
            choice(configuration, key)
        case Text() | Topic():
            given_text(configuration, key)
        case Callback():
            callback(configuration, key)
        case None:
            pass  # librdkafka checks the value


def _kind(key: str, kind: type[_Kind]) -> _Kind:
    found = KEYS[key].kind
    assert isinstance(found, kind)
    return found


def refuse_unknown(key: str) -> str:
    """Return the refusal of a key that the table lacks; empty if librdkafka may know it."""
    if key.startswith("coopgroup."):
        return f"no such key: coopgroup's own are {', '.join(_OWN_KEYS)}"
    return _NOT_HONOURED if key.startswith(CONNECTION_FAMILIES) else ""


def check_keys(
    configuration: Mapping[str, Any],
    known: Collection[str] = CONSUMER_KEYS,
    refuse: Callable[[str], str] = refuse_unknown,
) -> None:
    """Refuse keys that the reader does not have, and texts that could not be sent.

    Args:
        configuration: the configuration.
        known: the keys that the reader has.
        refuse: returns the end of the refusal of another key; empty to accept it.

    Raises:
        ConfigurationError: a key is refused, or a text would be cut off or could not be sent.
    """
    for key in sorted(configuration):
        _check_text(key, configuration[key])
    for key in sorted(configuration):
        value = configuration[key]
        if key not in known:
            called = key.replace("_", ".")  # it may be an argument of aiokafka and kafka-python
            renamed = f"no such key: it is called {called}" if called in known else ""
            reason = renamed or refuse(key)
            if reason:
                raise refused(key, value, reason if renamed else reason + did_you_mean(key, known))
        elif KEYS[key].instead:
            raise refused(key, value, KEYS[key].instead)
        elif KEYS[key].verdict is Verdict.ONLY:
            choice(configuration, key)


def _check_text(key: str, value: object) -> None:
    """Refuse text that would be cut off or could not be sent.

    librdkafka ends the process at a group name that is not UTF-8, which environment variables may
    contain, and reads text only up to a NUL. Text that is too long for the group's messages would
    never be sent.
    """
    if not isinstance(value, str):
        return
    if "\0" in value or not _is_utf8(value):
        raise refused(key, value, "text in UTF-8, without NUL")
    kind = KEYS[key].kind if key in KEYS else None
    if isinstance(kind, Text) and len(value.encode()) > kind.bytes_max:
        shown = f"{value[:_SHOWN_MAX]}…"
        raise refused(key, shown, f"at most {kind.bytes_max} bytes")


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def did_you_mean(key: str, known: Collection[str]) -> str:
    """Return a question about the key that was probably meant, empty without such a key."""
    names = sorted(one for one in known if KEYS[one].verdict is not Verdict.REFUSED)
    near = difflib.get_close_matches(key, names, n=1, cutoff=_LIKENESS)
    return f" (did you mean {near[0]}?)" if near else ""
