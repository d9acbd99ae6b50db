"""Options of commands that connect to brokers with a consumer's configuration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import click

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.config.shown_values import shown_setting

__all__ = ["bootstrap_option", "config_option", "parse_settings", "timeout_option"]

bootstrap_option: Final = click.option(
    "--bootstrap-server",
    default="localhost:9092",
    show_default=True,
    metavar="HOST:PORT",
    help="Broker, or several separated by commas.",
)

config_option: Final = click.option(
    "--config",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Key of the consumer's configuration, such as security.protocol; can be repeated.",
)

timeout_option: Final = click.option(
    "--timeout-ms",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="How long to wait for the group coordinator.",
)


def parse_settings(settings: Iterable[str]) -> dict[str, str]:
    """Read the arguments of `--config`.

    Raises:
        ConfigurationError: one is not KEY=VALUE.
    """
    pairs = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not key or not equals:
            raise ConfigurationError("--config", shown_setting(setting), "KEY=VALUE")
        pairs[key] = value
    return pairs
