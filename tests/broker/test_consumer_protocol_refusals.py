"""`group.protocol=consumer` where the cluster allows less: rights, releases, migration policies.

No member falls back to the classic protocol. What the user sees is one clear error.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, produce, unique
from tests.support.raw_consumers import Wire
from tests.support.waiting import wait_for

DEFAULT_S, OWN_S = 45.0, 50.0


@pytest.fixture(scope="module")
def strict() -> Iterator[KafkaCluster]:
    """A broker that wants passwords over TLS, knows rights, and converts no group."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # Resources without ACLs are open to all; the internal listener has no users.
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS",
        "group.consumer.migration.policy": "disabled",
    }
    with KafkaCluster(security="SASL_SSL", properties=properties) as cluster:
        yield cluster


def allow(cluster: KafkaCluster, group_id: str, right: AclOperation) -> None:
    """Allow one operation on a group to the members' user, and nothing else to any user."""
    config = cluster.client_config()
    user = f"User:{config['sasl.username']}"
    acl = AclBinding(
        *(ResourceType.GROUP, group_id, ResourcePatternType.LITERAL, user, "*"),
        *(right, AclPermissionType.ALLOW),
    )
    admin = AdminClient(dict(config))  # a reference: garbage collection fails its futures
    admin.create_acls([acl])[acl].result(60)


def events(caplog: pytest.LogCaptureFixture, *names: str) -> list[str]:
    found = [getattr(one, "event", "") for one in caplog.records]
    return [one for one in found if one in names]


def test_session_timeout_without_the_right_to_read_it_is_the_default(
    strict: KafkaCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The group works, and each member warns once. With the right, the member knows the time."""
    topic = unique("rights")
    strict.create_topic(topic, 4)
    produce(strict, topic, [2] * 4)
    known = ("session_timeout_unknown", "session_timeout_known")
    with Crew(strict, tmp_path, protocol="consumer") as crew, Wire(strict) as wire:
        wire.set_group(crew.group_id, session_timeout_ms=round(1_000 * OWN_S))
        allow(strict, crew.group_id, AclOperation.READ)

        def is_limited() -> bool:
            with suppress(AssertionError):
                return wire.session_ms(crew.group_id) == 0
            return True

        wait_for(is_limited, "rights spread a moment later")
        for name in "ab":
            crew.add(name).subscribe([topic])
        crew.until(lambda: crew.share((topic, 4)), "a fair share")
        crew.until(lambda: sum(map(len, crew.messages.values())) == 8, "all records")
        crew.until(lambda: len(events(caplog, *known)) == 2, "a warning of each")
        crew.during(0.5)
        assert {one.health().session_timeout_s for one in crew.members.values()} == {DEFAULT_S}
        assert all(DEFAULT_S > one.health().lease_s > 30 for one in crew.members.values())
        assert events(caplog, *known) == ["session_timeout_unknown"] * 2
        said = next(one for one in caplog.records if getattr(one, "event", "") == known[0])
        assert "GROUP_AUTHORIZATION_FAILED" in said.getMessage()
        allow(strict, crew.group_id, AclOperation.DESCRIBE_CONFIGS)
        wait_for(lambda: not is_limited(), "rights spread a moment later")
        crew.add("c").subscribe([topic])
        crew.until(lambda: crew.members["c"].health().session_timeout_s == OWN_S, "the timeout")
        crew.until(lambda: crew.members["c"].health().lease_s > DEFAULT_S, "a longer lease")
        assert events(caplog, *known) == ["session_timeout_unknown"] * 2


def test_classic_group_that_is_not_converted_refuses_the_member(
    strict: KafkaCluster, tmp_path: Path
) -> None:
    """The member retries as long as a revocation may last. The classic members notice nothing."""
    topic = unique("classic")
    strict.create_topic(topic, 4)
    with Crew(strict, tmp_path) as crew:
        crew.add("a").subscribe([topic])
        crew.until(lambda: crew.counts() == [4], "the classic member")
        crew.during(0.3)
        generation = crew.generation("a")
        crew.protocol = "consumer"
        crew.add("b", configuration={"max.poll.interval.ms": 1_000}).subscribe([topic])
        began_s = time.monotonic()
        with pytest.raises(KafkaException) as raised:
            crew.until(lambda: False, "a refusal", 30)
        assert time.monotonic() - began_s > 0.9
        error = raised.value.args[0]
        assert error.fatal()
        assert error.code() == KafkaError.GROUP_ID_NOT_FOUND
        assert "online upgrade is disabled" in error.str()
        with pytest.raises(KafkaException):  # again at each poll
            crew.until(lambda: False, "a refusal", 30)
        assert crew.members["b"].health().failure
        crew.remove("b")
        crew.during(0.3)
        assert (crew.counts(), crew.generation("a")) == ([4], generation)


@pytest.mark.verify
def test_group_shares_over_mutual_tls(tmp_path: Path) -> None:
    with (
        KafkaCluster(security="SSL") as cluster,
        Crew(cluster, tmp_path, protocol="consumer") as crew,
    ):
        cluster.create_topic("mutual", 4)
        produce(cluster, "mutual", [2] * 4)
        for name in "ab":
            crew.add(name).subscribe(["mutual"])
        crew.until(lambda: crew.share(("mutual", 4)), "a fair share")
        crew.until(lambda: sum(map(len, crew.messages.values())) == 8, "all records")
        crew.remove("b")
        crew.until(lambda: crew.counts() == [4], "the other one goes")


def refused(cluster: KafkaCluster, folder: Path) -> KafkaError:
    """Return the error of a member's `poll`."""
    cluster.create_topic("refused", 1)
    with Crew(cluster, folder, protocol="consumer") as crew:
        crew.add("a").subscribe(["refused"])
        began_s = time.monotonic()
        with pytest.raises(KafkaException) as raised:
            crew.until(lambda: False, "a refusal", 30)
        assert time.monotonic() - began_s < 15
        error: KafkaError = raised.value.args[0]
        assert error.fatal()
        return error


@pytest.mark.verify
def test_feature_that_is_switched_off_is_one_clear_error(tmp_path: Path) -> None:
    with KafkaCluster() as cluster:
        cluster.run_tool("kafka-features", "downgrade", "--feature", "group.version=0")
        error = refused(cluster, tmp_path)
        assert error.code() == KafkaError.UNSUPPORTED_VERSION
        assert "group.protocol=consumer needs Kafka 4.0 or newer" in error.str()


@pytest.mark.verify
@pytest.mark.parametrize("version", ["3.9.1", "3.3.2"])
def test_broker_before_4_0_is_one_clear_error(tmp_path: Path, version: str) -> None:
    with KafkaCluster(version=version) as cluster:
        error = refused(cluster, tmp_path)
        assert "group.protocol=consumer needs Kafka 4.0 or newer" in error.str()
