"""The table of keys agrees with the installed librdkafka and with the constructor."""

import ctypes
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer

from coopgroup.errors import ConfigurationError
from coopgroup.groups.settings import GroupSettings
from coopgroup.kafka.config.keys import CONSUMER_KEYS, KEYS, SECTIONS, Verdict
from coopgroup.kafka.config.settings import (
    merge_configuration,
    read_settings,
    refusal_of_librdkafka,
)

ROWS = [KEYS[name] for name in sorted(CONSUMER_KEYS)]
BASE = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
# Keys of confluent_kafka itself, unknown to librdkafka.
OF_PYTHON = {
    "default.topic.config",
    "key.deserializer",
    "key.deserializer.builder",
    "logger",
    "oauth_cb",
    "on_commit",
    "value.deserializer",
    "value.deserializer.builder",
}
# Values for keys whose default, or first value of the range, cannot be tried.
SAMPLES: dict[str, Any] = {
    "builtin.features": "gzip",
    "coopgroup.protocols": "coopgroup,cooperative-sticky",
    "coopgroup.member": '{"places": 4}',
    "coopgroup.telemetry.listener": print,
    "default.topic.config": {"auto.offset.reset": "earliest"},
    "enable.ssl.certificate.verification": "true",
    "error_cb": print,
    "group.id": "g",
    "key.deserializer": print,
    "on_commit": print,
    "stats_cb": print,
    "throttle_cb": print,
    "value.deserializer": print,
}
# These need an existing file, or wait for a token.
UNTRIED = {
    "https.ca.location",
    "coopgroup.telemetry.file",
    "logger",
    "oauth_cb",
    "plugin.library.paths",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.cipher.suites",
    "ssl.crl.location",
    "ssl.key.location",
    "ssl.keystore.location",
}


def installed(folder: Path) -> dict[str, str]:
    """Return a value for each consumer key of the installed librdkafka."""
    wheel = Path(confluent_kafka.__file__).parents[1]
    library = next((wheel / "confluent_kafka.libs").glob("librdkafka*"))
    c_library = ctypes.CDLL(None)
    c_library.fopen.restype = ctypes.c_void_p
    c_library.fclose.argtypes = [ctypes.c_void_p]
    show = ctypes.CDLL(str(library)).rd_kafka_conf_properties_show
    show.argtypes = [ctypes.c_void_p]
    file = c_library.fopen(str(folder / "keys").encode(), b"w")
    show(file)
    c_library.fclose(file)
    values: dict[str, str] = {}
    for line in (folder / "keys").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 5 and cells[1] in {"*", "C"}:
            first = cells[2].split("..", maxsplit=1)[0].split(",")[0].strip()
            values.setdefault(cells[0], cells[3] or first or "x")
    return values


def complaint(key: str, value: object, **beside: str) -> str | None:
    """Return the error for a consumer configuration with this key, None if it is accepted."""
    try:
        settings = read_settings(merge_configuration(BASE, {key: value, **beside}))
    except ConfigurationError as error:
        return str(error)
    try:
        Consumer(dict(settings.librdkafka)).close()
    except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
        return str(refusal_of_librdkafka(error, settings.librdkafka))
    return None


def test_group_takes_every_key_that_a_consumer_takes(tmp_path: Path) -> None:
    values = installed(tmp_path) | SAMPLES
    wrong = {}
    for row in ROWS:
        usual = "5000" if row.verdict is Verdict.OURS else "x"
        if row.name not in UNTRIED:
            try:
                GroupSettings.read(
                    merge_configuration(BASE, {row.name: values.get(row.name, usual)})
                )
            except ConfigurationError as error:
                wrong[row.name] = str(error)
    assert set(wrong) == {row.name for row in ROWS if row.verdict is Verdict.REFUSED} - UNTRIED


def test_table_has_exactly_the_keys_that_there_are(tmp_path: Path) -> None:
    """The keys of librdkafka's consumer, of confluent_kafka, and of coopgroup."""
    known = set(installed(tmp_path)) | OF_PYTHON
    ours = {row.name for row in ROWS if row.verdict is Verdict.OURS}
    # A connection key may be missing in the installed version of librdkafka.
    extra = {"ssl.certificate.verify_cb", "client.dns.lookup"}
    assert CONSUMER_KEYS - extra - ours == known - extra
    assert {row.name for row in ROWS if row.name.startswith("coopgroup.")} == ours
    assert len(KEYS) == sum(len(rows) for rows in SECTIONS.values())


def test_every_key_does_what_the_table_says(tmp_path: Path) -> None:
    """The error for a refused key is one line that names it; all others are accepted."""
    values = installed(tmp_path) | SAMPLES
    wrong = {}
    for row in ROWS:
        if row.name in UNTRIED:
            continue
        usual = "5000" if row.verdict is Verdict.OURS else "x"
        beside = {"group.protocol": row.only_with} if row.only_with else {}
        said = complaint(row.name, values.get(row.name, usual), **beside)
        is_right = said is None
        if row.verdict is Verdict.REFUSED:
            is_right = said is not None and said.startswith(f"{row.name}: got ")
            is_right = is_right and "\n" not in str(said)
        if not is_right:
            wrong[row.name] = (row.verdict, said)
    assert wrong == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("client.dns.lookup", "resolve_canonical_bootstrap_servers_only"),
        ("enable.sasl.oauthbearer.unsecure.jwt", "true"),
        ("group.protocol.type", "connect"),
        ("sasl.oauthbearer.grant.type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
        ("sasl.oauthbearer.metadata.authentication.type", "azure_imds"),
        ("sasl.oauthbearer.method", "jwt"),
    ],
)
def test_key_that_is_taken_with_some_values_only_refuses_the_others(key: str, value: str) -> None:
    assert KEYS[key].verdict is Verdict.ONLY
    assert str(complaint(key, value)).startswith(f"{key}: got '{value}', expected ")


def test_default_is_a_value_that_the_key_accepts(subtests: pytest.Subtests) -> None:
    for row in ROWS:
        with subtests.test(row=row):
            if row.default is not None and row.name not in UNTRIED:
                assert complaint(row.name, row.default) is None


def test_key_whose_name_speaks_of_a_secret_is_secret() -> None:
    words = ("password", "secret", "passphrase", "pem", "username", "private", "token")
    speaking = {row.name for row in KEYS.values() if any(word in row.name for word in words)}
    assert {name for name in speaking if not KEYS[name].secret} == set()
