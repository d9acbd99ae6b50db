"""Options of commands that connect to brokers with a consumer's configuration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import click

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.config.shown_values import shown_setting

__all__ = ["bootstrap_option", "parse_settings"]

bootstrap_option: Final = click.option(
    "--bootstrap-server",
    default="localhost:9092",
    show_default=True,
    metavar="HOST:PORT",
    help="Broker, or several separated by commas.",
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
