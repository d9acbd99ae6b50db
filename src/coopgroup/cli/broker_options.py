"""Options of commands that connect to brokers with a consumer's configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from attrs import field, frozen
from confluent_kafka import Consumer, KafkaException

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.config.settings import ConsumerSettings, read_settings, refusal_of_librdkafka
from coopgroup.kafka.config.shown_values import shown_setting

Command = TypeVar("Command", bound=Callable[..., Any])


def gathered(
    name: str, make: Callable[..., object], *options: Callable[..., Any]
) -> Callable[[Command], Command]:
    """Add options to a command, which gets one value made of them.

    Args:
        name: argument of the command that gets the value.
        make: makes it; its parameters are the options' names.
        options: the options, in the order of the help.
    """
    parts = tuple(signature(make).parameters)

    def decorate(command: Command) -> Command:
        @wraps(command)
        def called(**given: Any) -> object:  # noqa: ANN401 - of any option
            value = make(**{part: given.pop(part) for part in parts})
            return command(**given, **{name: value})

        found: Any = called
        for option in reversed(options):
            found = option(found)
        decorated: Command = found
        return decorated

    return decorate


bootstrap_option: Final = click.option(
    "--bootstrap-server",
    default="localhost:9092",
    show_default=True,
    metavar="HOST:PORT",
    help="Broker, or several separated by commas.",
)

config_option: Final = click.option(
    "--config",
    multiple=True,
    metavar="KEY=VALUE|@FILE",
    help="Key of the consumer's configuration, such as security.protocol, or a file with a line for"
    " each; can be repeated. Passwords belong into a file.",
)


@frozen(kw_only=True)
class BrokerOptions:
    """Brokers, and how to reach them; made of the arguments of a command."""

    bootstrap_server: str
    config: Sequence[str] = field(repr=False)
    timeout_ms: int

    def configuration(self, client_id: str, group_id: str | None = None) -> dict[str, Any]:
        """Return a client's configuration; its group is called like itself if not given.

        Raises:
            ConfigurationError: an argument of `--config` is not KEY=VALUE.
        """
        return {
            "bootstrap.servers": self.bootstrap_server,
            "client.id": client_id,
            "group.id": group_id or client_id,
            "log_level": 0,
            **pairs(self.config, "--config"),
        }

    def client(self, client_id: str, group_id: str | None = None) -> ConsumerSettings:
        """Return a client's settings.

        Raises:
            ConfigurationError: a key is unknown or has an invalid value.
        """
        read = read_settings(self.configuration(client_id, group_id))
        try:
            Consumer(dict(read.librdkafka)).close()  # an admin client gets known keys only
        except (KafkaException, TypeError, ValueError) as error:
            raise refusal_of_librdkafka(error, read.librdkafka) from None
        return read


def broker_options(waits_for: str = "the group coordinator") -> Callable[[Command], Command]:
    """Add how to reach the brokers: `brokers`."""
    timeout = click.option(
        "--timeout-ms",
        type=click.IntRange(min=1),
        default=10_000,
        show_default=True,
        help=f"How long to wait for {waits_for}.",
    )
    return gathered("brokers", BrokerOptions, bootstrap_option, config_option, timeout)


def pairs(given: Sequence[str], option: str) -> dict[str, str]:
    """Read KEY=VALUE arguments, and those that name a file of them, as @FILE.

    All users of the machine can read the arguments of a process, so passwords belong into a file.
    No message shows its content.

    Raises:
        ConfigurationError: one is no pair, or a file cannot be read.
    """
    found = {}
    for one in given:
        if one.startswith("@"):
            found.update(_pairs_of_file(one, option))
            continue
        key, equals, value = one.partition("=")
        if not key or not equals:
            raise ConfigurationError(option, shown_setting(one), "KEY=VALUE, or @FILE")
        found[key] = value
    return found


def _pairs_of_file(name: str, option: str) -> dict[str, str]:
    try:
        lines = Path(name[1:]).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no UTF-8"
        raise ConfigurationError(option, name, f"a file that can be read ({reason})") from None
    found = {}
    for number, line in enumerate(lines, start=1):
        key, equals, value = (part.strip() for part in line.partition("="))
        if (not key and not equals) or key.startswith("#"):
            continue
        if not key or not equals:
            raise ConfigurationError(
                option, f"{name} line {number}", "KEY=VALUE, or # and a remark"
            )
        found[key] = value
    return found
