"""Options that the jobs of `coopgroup pipeline` share, and what is made of them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from attrs import frozen

from coopgroup.cli.broker_options import (
    Command,
    bootstrap_option,
    config_option,
    gathered,
    pairs,
)
from coopgroup.errors import ConfigurationError
from coopgroup.pipeline.folders import local_folder
from coopgroup.pipeline.spark.session import (
    LIGHT,
    LOCAL_MASTER,
    build_session,
    check_settings,
    connector_jars,
    is_submitted,
    require_spark,
)

if TYPE_CHECKING:
    from coopgroup.pipeline.ends import Cluster
    from coopgroup.pipeline.scope import Scope
    from coopgroup.pipeline.tables import Tables

_LOGIN_MODULES: Final = {
    "PLAIN": "plain.Plain",
    "SCRAM-SHA-256": "scram.Scram",
    "SCRAM-SHA-512": "scram.Scram",
}
_SAME_KEYS: Final = ("bootstrap.servers", "security.protocol")
_OF_JAVA: Final = "spark.driver.extraJavaOptions"
_SMALL_BYTES: Final = 10_000_000
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d+)?)([smhdw])")
_A_PAST_TIME: Final = (
    "a time in the past, such as 2026-11-22T08:00Z, or a duration before now, such as 12h or 7d"
)


@frozen(kw_only=True)
class Place:
    """Where a job runs and writes."""

    folder: str
    master: str
    jars: tuple[str, ...]
    settings: Mapping[str, str]

    def require_folder(self) -> None:
        """Refuse a folder of this machine that does not exist, for jobs that go on from tables.

        Raises:
            ConfigurationError: it does not exist.
        """
        folder = local_folder(self.folder)
        if folder is not None and not folder.is_dir():
            raise ConfigurationError(
                "--tables", self.folder, "a folder with tables, of coopgroup pipeline history"
            )

    def tables(self, *, is_brief: bool = False) -> Tables:
        """Start Spark and return the tables.

        Args:
            is_brief: whether the job reads the tables, and ends. If they are small, Java's
                optimising compiler would then take half of the CPU time.

        Raises:
            CoopgroupError: a requirement is missing, a setting is wrong, or another release wrote
                the folder; nothing was written then.
        """
        tables = self.any_tables(is_brief=is_brief)
        tables.check_release()
        return tables

    def any_tables(self, *, is_brief: bool = False) -> Tables:
        """Return the tables, also of a folder of another release; else as `tables`."""
        require_spark()
        from coopgroup.pipeline.tables import Tables  # noqa: PLC0415 - needs the extra

        check_settings(master=self.master, jars=self.jars, extra=self.settings)
        local = local_folder(self.folder)
        if local is not None and local.exists() and not local.is_dir():
            raise ConfigurationError("--tables", self.folder, "a folder, not a file")
        jars = self.jars or (() if is_submitted() else connector_jars())
        is_light = is_brief and local is not None and _is_small(local)
        java = {_OF_JAVA: LIGHT[_OF_JAVA]} if is_light else {}
        session = build_session(master=self.master, jars=jars, extra={**java, **self.settings})
        # A session that runs already may have begun in another folder.
        folder = self.folder if "://" in self.folder else str(Path(self.folder).absolute())
        return Tables(spark=session, folder=folder)


def _is_small(folder: Path) -> bool:
    """Return whether a folder has tables, of less than about a million rows.

    Only files in folders by day count. A first run that is killed early leaves the source of its
    topic, and the next run has all records to read.
    """
    size = 0
    for file in folder.glob("v*/**/day=*/*.parquet"):
        size += file.stat().st_size
        if size > _SMALL_BYTES:
            return False
    return size > 0


def place_of(folder: str, master: str, jars: str, settings: Sequence[str]) -> Place:
    """Return a place from the options of a command.

    Raises:
        MissingExtraError: Spark is not installed.
        ConfigurationError: a setting is no pair.
    """
    require_spark()
    return Place(
        folder=folder,
        master=master,
        jars=tuple(jar for jar in jars.split(",") if jar),
        settings=pairs(settings, "--conf"),
    )


_master = click.option(
    "--master",
    default=LOCAL_MASTER,
    show_default=True,
    metavar="URL",
    help="Where Spark runs.",
)
_conf = click.option(
    "--conf",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of Spark, such as spark.driver.memory=4g, or @FILE with a line for each; may be"
    " repeated.",
)


def place_options(
    folder: Callable[[Command], Command], jars_help: str
) -> Callable[[Command], Command]:
    """Add where Spark runs, how it is set, and a folder: `place`."""
    jars = click.option("--jars", default="", metavar="FILE,...", help=jars_help)
    return gathered("place", place_of, folder, _master, jars, _conf)


tables_options = place_options(
    click.option(
        "--tables", "folder", required=True, metavar="FOLDER", help="Where the tables are."
    ),
    "Jars of Spark's Kafka source and of Delta Lake; fetched with Maven if not given.",
)
"""Add where the tables are, and where Spark runs: `place`."""


def cluster_of(
    bootstrap_server: str, config: Sequence[str], kafka_option: Sequence[str], batch_records: int
) -> tuple[Cluster, dict[str, str]]:
    """Return the cluster, and the options of Spark's source for it."""
    from coopgroup.pipeline.ends import Cluster  # noqa: PLC0415 - needs the extra

    settings = {"bootstrap.servers": bootstrap_server, **pairs(config, "--config")}
    options = kafka_options(settings, pairs(kafka_option, "--kafka-option"))
    options["maxOffsetsPerTrigger"] = str(batch_records)
    return Cluster(config=settings), options


cluster_options = gathered(
    "cluster",
    cluster_of,
    bootstrap_option,
    config_option,
    click.option(
        "--kafka-option",
        multiple=True,
        metavar="KEY=VALUE",
        help="A key of the Java client's configuration for Spark's source, where --config cannot"
        " say it, or @FILE; may be repeated.",
    ),
    click.option(
        "--batch-records",
        type=click.IntRange(min=1),
        default=1_000_000,
        show_default=True,
        help="Records that Spark reads at a time, at most. Fewer need less memory.",
    ),
)
"""Add how to reach the brokers: `cluster`."""


def group_option(*, required: bool = False) -> Callable[[Command], Command]:
    """Add the groups of a job: `groups`."""
    return click.option(
        "--group",
        "groups",
        multiple=True,
        required=required,
        metavar="NAME",
        help="Only this group; may be repeated." + ("" if required else " Default: all groups."),
    )


def scope_options(
    since: str | None = None, *, requires_group: bool = False
) -> Callable[[Command], Command]:
    """Add the groups that a job looks at, and the begin of its time: `scope`."""
    since_option = click.option(
        "--since",
        default=since,
        show_default=since is not None,
        metavar="TIME",
        help="Only from this time on: a time such as 2026-11-22T08:00Z, or a duration before now"
        " such as 12h or 7d.",
    )
    return gathered("scope", scope_of, group_option(required=requires_group), since_option)


def scope_of(groups: Sequence[str], since: str | None) -> Scope:
    """Return what a job looks at, from its options.

    Raises:
        ConfigurationError: a name is empty, or the time is no past time.
    """
    if "" in groups:
        raise ConfigurationError("--group", "", "the name of a group")
    since_ms = 0 if since is None else since_of(since, time.time_ns() // 1_000_000)
    from coopgroup.pipeline.scope import Scope  # noqa: PLC0415 - needs the extra

    return Scope(groups=tuple(sorted(set(groups))), since_ms=since_ms)


def since_of(text: str, now_ms: int, option: str = "--since") -> int:
    """Return a time of `--since` in ms since 1970.

    A duration begins with a whole unit: `7d` at midnight (UTC), `12h` at the full hour. So jobs
    that a scheduler runs often look at the same time, and can continue their last run.

    Args:
        text: a time in ISO format (in UTC if it names no zone), or a duration before now.
        now_ms: the present, in ms since 1970.
        option: name of the option.

    Raises:
        ConfigurationError: the text is neither, or the time is in the future.
    """
    duration = _DURATION.fullmatch(text)
    if duration is not None:
        unit_ms = _UNITS_MS[duration[2]]
        begin_ms = max(0, now_ms - int(float(duration[1]) * unit_ms))
        return begin_ms - begin_ms % min(unit_ms, _UNITS_MS["d"])
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(option, text, _A_PAST_TIME) from None
    since_ms = int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1_000)
    if since_ms > now_ms:
        raise ConfigurationError(option, text, _A_PAST_TIME)
    return max(0, since_ms)


def kafka_options(config: Mapping[str, str], further: Mapping[str, str]) -> dict[str, str]:
    """Options of Spark's Kafka source from librdkafka's configuration.

    Address, protocol, user and certificate authority are translated; the Java client wants the
    rest (client certificates, Kerberos, tokens) in its own way, as `further`.
    """
    options = {key: config[key] for key in _SAME_KEYS if key in config}
    if "ssl.ca.location" in config:
        options["ssl.truststore.type"] = "PEM"
        options["ssl.truststore.location"] = config["ssl.ca.location"]
    mechanism = config.get("sasl.mechanism", config.get("sasl.mechanisms"))
    if mechanism is not None:
        options["sasl.mechanism"] = mechanism
    # Other mechanisms (Kerberos, tokens) have a configuration of Java's own.
    module = _LOGIN_MODULES.get(mechanism or "")
    if module is not None:
        user, password = (config.get(f"sasl.{one}", "") for one in ("username", "password"))
        options["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module}LoginModule required"
            f' username="{_quoted(user)}" password="{_quoted(password)}";'
        )
    return {f"kafka.{key}": value for key, value in {**options, **further}.items()}


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
