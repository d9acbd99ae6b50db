"""Configuration of librdkafka, translated for the Java client."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from coopgroup.cli.pipeline.options import Place, kafka_options, scope_of, since_of
from coopgroup.errors import ConfigurationError
from coopgroup.pipeline.spark.session import LIGHT

OF_JAVA = "spark.driver.extraJavaOptions"


def test_a_user_becomes_a_login_module() -> None:
    given = {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "me",
        "sasl.password": 'pass"word',
        "ssl.ca.location": "ca.pem",
    }
    assert kafka_options(given, {}) == {
        "kafka.bootstrap.servers": "a:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required"
            ' username="me" password="pass\\"word";'
        ),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "ca.pem",
    }
    plain = kafka_options({"sasl.mechanisms": "PLAIN"}, {})
    assert "plain.PlainLoginModule" in plain["kafka.sasl.jaas.config"]


def test_another_mechanism_gets_no_login_module_that_would_hide_its_own() -> None:
    given = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"}
    assert kafka_options(given, {}) == {"kafka.sasl.mechanism": "OAUTHBEARER"}


NOW_MS = 1_800_000_000_000  # 2027-01-15T08:00:00Z
MIDNIGHT_MS = NOW_MS - 8 * 3_600_000


@pytest.mark.parametrize(
    ("text", "since_ms"),
    [
        ("30s", NOW_MS - 30_000),
        ("1.5h", NOW_MS - 7_200_000),
        ("90m", NOW_MS - 5_400_000),
        ("7d", MIDNIGHT_MS - 7 * 86_400_000),
        ("999w", MIDNIGHT_MS - 999 * 7 * 86_400_000),
        ("9999w", 0),
        ("2027-01-15", NOW_MS - 8 * 3_600_000),
        ("2027-01-15T07:59:59.5Z", NOW_MS - 500),
        ("2027-01-15T09:00+02:00", NOW_MS - 3_600_000),
        ("1960-01-01", 0),
    ],
)
def test_since_is_a_time_or_a_duration(text: str, since_ms: int) -> None:
    assert since_of(text, NOW_MS) == since_ms


@pytest.mark.parametrize("text", ["", "7", "d", "-7d", "7 days", "yesterday", "2027-01-15T08:01"])
def test_since_when_it_is_no_past_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--since: got .*, expected a time in the past"):
        since_of(text, NOW_MS)


@pytest.mark.parametrize(
    ("size", "is_brief", "given", "expected"),
    [
        pytest.param(1_000, True, {}, LIGHT[OF_JAVA], id="few rows"),
        pytest.param(20_000_000, True, {}, None, id="many rows"),
        pytest.param(0, True, {}, None, id="no rows yet"),
        pytest.param(1_000, False, {}, None, id="a job that may go on"),
        pytest.param(1_000, True, {OF_JAVA: "-Xint"}, "-Xint", id="a setting of the user"),
    ],
)
def test_java_compiles_less_for_a_short_job_with_few_rows(
    size: int,
    is_brief: bool,
    given: dict[str, str],
    expected: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = {"v1/commits/day=2026-11-23": size, "v1/sources/history": 1_000}
    for folder, each in sizes.items():
        file = tmp_path / folder / "part.parquet"
        file.parent.mkdir(parents=True)
        with file.open("wb") as sparse:
            sparse.truncate(each)
    asked: list[Mapping[str, str]] = []

    def build_session(*, extra: Mapping[str, str], **_: object) -> None:
        asked.append(extra)

    monkeypatch.setattr("coopgroup.cli.pipeline.options.build_session", build_session)
    place = Place(folder=str(tmp_path), master="local[2]", jars=(__file__,), settings=given)
    place.any_tables(is_brief=is_brief)
    assert asked[0].get(OF_JAVA) == expected


def test_groups_are_named_once() -> None:
    assert scope_of(["b", "a", "b"], None).groups == ("a", "b")
    with pytest.raises(ConfigurationError, match="--group"):
        scope_of([""], None)
