"""Callbacks of the configuration, so wrapped that what they raise comes out of `poll` as it is.

confluent_kafka 2.16 keeps what a callback raised until its call is over, but on Python 3.11 it can
do so only with exceptions that are objects already. One that C code raised (`int("x")`), or
Ctrl-C, is not yet, and comes out as a SystemError that says nothing of it. Passing through an
`except` makes it an object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["with_plain_errors"]

_CALLED_FROM_POLL: Final = ("error_cb", "stats_cb", "throttle_cb")


def with_plain_errors(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a client, its callbacks wrapped; what cannot be called stays as it is.

    Args:
        configuration: keys of confluent_kafka.
    """
    return {
        key: _raising(value) if key in _CALLED_FROM_POLL and callable(value) else value
        for key, value in configuration.items()
    }


def _raising(callback: Callable[..., object]) -> Callable[..., object]:
    def call(*arguments: Any) -> object:  # noqa: ANN401  (those of librdkafka)
        try:
            return callback(*arguments)
        except BaseException:  # noqa: TRY203 -- makes it an object, see the top of this file
            raise

    return call
