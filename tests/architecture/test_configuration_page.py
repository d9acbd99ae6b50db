"""docs/configuration.md agrees with the installed librdkafka and with the constructor."""

import ctypes
import re
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.config.settings import (
    merge_configuration,
    read_settings,
    refusal_of_librdkafka,
)

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
ROW = re.compile(r"^\| `([\w.]+)` \| ([\w ]+) \| (.*)\|$", re.MULTILINE)
VERDICTS = dict[str, tuple[str, str]]
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
    "coopgroup.telemetry.file.backups": "3",
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


def page() -> VERDICTS:
    """Return verdict and note of each key on the page."""
    rows = ROW.findall(PAGE.read_text())
    found = {key: (verdict, note) for key, verdict, note in rows}
    assert len(found) == len(rows), "a key stands twice"
    return found


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


def complaint(key: str, value: object) -> str | None:
    """Return the error for a consumer configuration with this key, None if it is accepted."""
    try:
        settings = read_settings(merge_configuration(BASE, {key: value}))
    except ConfigurationError as error:
        return str(error)
    try:
        Consumer(dict(settings.librdkafka)).close()
    except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
        return str(refusal_of_librdkafka(error, settings.librdkafka))
    return None


def test_page_lists_exactly_the_keys_that_there_are(tmp_path: Path) -> None:
    """The keys of librdkafka's consumer, of confluent_kafka, and of coopgroup."""
    known = set(installed(tmp_path)) | OF_PYTHON
    ours = {key for key, (verdict, _) in page().items() if verdict == "ours"}
    # A connection key may be missing in the installed version of librdkafka.
    extra = {"ssl.certificate.verify_cb", "client.dns.lookup"}
    assert set(page()) - extra - ours == known - extra
    assert {key for key in page() if key.startswith("coopgroup.")} == ours


def test_every_key_does_what_the_page_says(tmp_path: Path) -> None:
    """The error for a refused key is one line that names it; all others are accepted."""
    values = installed(tmp_path) | SAMPLES
    wrong = {}
    for key, (verdict, _) in sorted(page().items()):
        if key in UNTRIED:
            continue
        said = complaint(key, values.get(key, "5000" if verdict == "ours" else "x"))
        is_right = said is None
        if verdict == "refused":
            is_right = said is not None and said.startswith(f"{key}: got ") and "\n" not in said
        if not is_right:
            wrong[key] = (verdict, said)
    assert wrong == {}


def test_keys_that_are_taken_with_some_values_only_refuse_the_others() -> None:
    """The page says "only" for exactly these."""
    others = {
        "client.dns.lookup": "resolve_canonical_bootstrap_servers_only",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "group.protocol": "consumer",
        "group.protocol.type": "connect",
        "sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "sasl.oauthbearer.metadata.authentication.type": "azure_imds",
        "sasl.oauthbearer.method": "jwt",
    }
    assert {key for key, (verdict, _) in page().items() if verdict == "only"} == set(others)
    for key, value in others.items():
        assert str(complaint(key, value)).startswith(f"{key}: got '{value}', expected ")
