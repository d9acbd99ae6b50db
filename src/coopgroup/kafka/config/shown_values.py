"""The values of a configuration that an error or a `repr` may show.

Many people read logs, and errors are logged. A list of secret keys is never complete: librdkafka
adds keys, and a misspelt `sasl.passwrd` holds a password, too. So only the values of keys that the
table knows, and does not call secret, are shown. Every other value is replaced.

Rule of this file: make an error about a key with `refused`, never with `ConfigurationError` itself
(an architecture test checks this).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.config.keys import KEYS

HIDDEN: Final = "(not shown)"

_ADDRESSES: Final = ("bootstrap.servers", "metadata.broker.list")
# Real keys have no other characters: the rest may be a value in the wrong place.
_KEY: Final = re.compile(r"[\w.-]*")
# Shorter parts of a secret occur in a message by chance.
_PART: Final = 4


def _is_harmless(key: str) -> bool:
    return key in KEYS and not KEYS[key].secret


def shown(key: str, value: object) -> object:
    """Return a value as an error may show it: `HIDDEN` unless the key is known to be harmless."""
    if not _is_harmless(key):
        return HIDDEN
    if isinstance(value, str):
        is_pem = "-----BEGIN" in value or "\n" in value
        has_user = key in _ADDRESSES and "@" in value  # user:password@host
        return HIDDEN if is_pem or has_user else value
    # The repr of a callback may show its object.
    plain = value is None or isinstance(value, int | float)
    return value if plain else f"({type(value).__name__})"


def shown_configuration(configuration: Mapping[str, Any]) -> str:
    """Return the `repr` of a configuration, without values that may be secret."""
    return repr({key: shown(key, value) for key, value in configuration.items()})


def shown_setting(setting: str) -> str:
    """Return an argument that should be KEY=VALUE but is not, as an error may show it."""
    return setting if _is_harmless(setting) else HIDDEN


def refused(key: str, value: object, expected: str) -> ConfigurationError:
    """Return the error about one key of a configuration."""
    name = _KEY.match(key)
    readable = "" if name is None else name.group()
    return ConfigurationError(
        readable if readable == key else f"{readable}…", shown(key, value), expected
    )


def safe_reason(reason: str, configuration: Mapping[str, Any]) -> str | None:
    """Return librdkafka's reason for a refusal; None if it repeats part of a secret."""
    parts = {reason[at : at + _PART] for at in range(len(reason) - _PART + 1)}
    for key, value in configuration.items():
        if shown(key, value) is not HIDDEN:
            continue
        text = str(value)
        if len(text) < _PART:
            repeats = text != "" and text in reason
        else:
            repeats = any(text[at : at + _PART] in parts for at in range(len(text) - _PART + 1))
        if repeats:
            return None
    return reason
