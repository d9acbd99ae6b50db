"""Groups with passwords or OIDC tokens over TLS, and the effect of a wrong password."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from coopgroup.cli import app
from coopgroup.core.member.effects import Lane
from coopgroup.kafka.membership import supervised
from coopgroup.supervisor import VARIABLE
from coopgroup.telemetry import MembershipLost
from coopgroup.testing import KafkaCluster
from coopgroup.testing.cluster import JVM_OPTIONS
from tests.support.live_group import Crew, produce, unique
from tests.support.oidc_provider import AUDIENCE, OidcProvider, oidc_provider
from tests.support.waiting import wait_for

FAILURE_S_MAX = 60.0


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    with oidc_provider(life_s=4.0) as provider:
        yield provider


@pytest.fixture(scope="module")
def secured(provider: OidcProvider) -> Iterator[KafkaCluster]:
    """A broker for passwords and for the provider's tokens."""
    oauth = "listener.name.client.oauthbearer"
    module = "org.apache.kafka.common.security.oauthbearer"
    properties = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER",
        f"{oauth}.sasl.jaas.config": f"{module}.OAuthBearerLoginModule required;",
        f"{oauth}.sasl.server.callback.handler.class": (
            f"{module}.OAuthBearerValidatorCallbackHandler"
        ),
        f"{oauth}.sasl.oauthbearer.jwks.endpoint.url": provider.jwks_url,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # Resources without ACLs are open to all; the internal listener has no users.
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS",
        f"{oauth}.sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.jwks_url}"
    with KafkaCluster(
        security="SASL_SSL", properties=properties, jvm_options=(*JVM_OPTIONS, allowed)
    ) as cluster:
        yield cluster


def test_a_group_of_two_works_when_brokers_want_scram_over_tls(
    secured: KafkaCluster, tmp_path: Path
) -> None:
    """Joins, hand-over and commits, as without security."""
    topic = unique("secured")
    secured.create_topic(topic, 4)
    produce(secured, topic, [2] * 4)
    with Crew(secured, tmp_path) as crew:
        crew.add("a").subscribe([topic])
        crew.add("b").subscribe([topic])
        crew.until(lambda: crew.share((topic, 4)), "a fair share")
        crew.until(lambda: sum(map(len, crew.messages.values())) == 8, "all records")
        crew.remove("b")
        crew.until(lambda: crew.counts() == [4], "the other one goes")
        crew.remove("a")  # commits; auto-commit may have done so before
        crew.add("c")
        assert crew.committed(topic, 4) == [2] * 4
        assert sum(map(len, crew.messages.values())) == 8


@pytest.mark.verify
def test_tokens_by_oidc_are_renewed_before_they_end(
    secured: KafkaCluster, provider: OidcProvider, tmp_path: Path
) -> None:
    """Two members outlive their tokens, and an endpoint that fails for a while: no rebalance."""
    topic = unique("oidc")
    secured.create_topic(topic, 4)
    with Crew(secured, tmp_path) as crew:
        for name in "ab":
            crew.add(name, configuration=provider.configuration()).subscribe([topic])
        crew.until(lambda: crew.share((topic, 4)), "a fair share")
        crew.during(0.3)
        generation = crew.generation("a")
        for _ in range(2):
            given = len(provider.seen)
            crew.during(provider.life_s)
            produce(secured, topic, [1] * 4)
            # Each of the two members has two clients: librdkafka, and the group's connections.
            crew.until(lambda: len(provider.seen) >= given + 4, "new tokens")  # noqa: B023
        provider.answer = (503, {}, b"")
        crew.during(0.6 * provider.life_s)
        provider.answer = None
        crew.until(lambda: sum(map(len, crew.messages.values())) == 8, "all records")
        assert crew.share((topic, 4))
        assert {crew.generation(name) for name in "ab"} == {generation}
        crew.until(lambda: crew.committed(topic, 4) == [2] * 4, "commits")


def _scram(cluster: KafkaCluster, user: str, password: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion(user, info, password.encode())
    admin = AdminClient(dict(cluster.client_config()))
    admin.alter_user_scram_credentials([change])[user].result(60)


def test_new_password_is_used_without_a_rebalance(secured: KafkaCluster, tmp_path: Path) -> None:
    """New connections need the new password: those of the group, and a client's first ones."""
    topic, user = unique("password"), unique("user")
    secured.create_topic(topic, 2)
    _scram(secured, user, "old")
    login = {"sasl.username": user, "sasl.password": "old"}
    with Crew(secured, tmp_path) as crew:
        consumer = crew.add("a", configuration=login)
        consumer.subscribe([topic])
        crew.until(lambda: crew.share((topic, 2)), "both partitions")
        generation = crew.generation("a")
        _scram(secured, user, "new")
        consumer.set_sasl_credentials(user, "new")
        for lane in Lane:
            consumer._driver.transport.close_lane(lane)  # noqa: SLF001  (nothing public does it)
        produce(secured, topic, [1] * 2)
        crew.until(lambda: len(crew.messages["a"]) == 2, "both records")
        consumer.commit(asynchronous=False)
        assert crew.generation("a") == generation
        crew.remove("a")
        # A member whose old password was refused begins again.
        consumer = crew.add("b", configuration=login)
        consumer.subscribe([topic])
        with pytest.raises(KafkaException, match="uthenticat"):
            crew.until(lambda: False, "a refusal")
        consumer.set_sasl_credentials(user, "new")
        consumer.subscribe([topic])
        produce(secured, topic, [1] * 2)
        crew.until(lambda: len(crew.messages["b"]) == 2, "both new records")


def test_poll_raises_when_the_password_is_wrong(
    secured: KafkaCluster, tmp_path: Path, own_threads: Callable[[], list[str]]
) -> None:
    """The error comes again at the next poll; close waits for no time-out."""
    with Crew(secured, tmp_path) as crew:
        consumer = crew.add("a", configuration={"sasl.password": "wrong"})
        consumer.subscribe(["secured"])
        for _ in range(2):
            with pytest.raises(KafkaException, match="uthenticat"):
                wait_for(lambda: consumer.poll(0.2), "the error", FAILURE_S_MAX)
        began = time.monotonic()
        crew.remove("a")
        assert time.monotonic() - began < 15
    assert own_threads() == []


def test_group_works_with_a_certificate_from_a_keystore(tmp_path: Path) -> None:
    """The broker requires a client's certificate, from librdkafka and from the group."""
    with KafkaCluster(security="SSL") as cluster, Crew(cluster, tmp_path) as crew:
        config = cluster.client_config()
        certificate, key = (
            Path(config[f"ssl.{name}.location"]).read_bytes() for name in ("certificate", "key")
        )
        private: Any = serialization.load_pem_private_key(key, password=None)
        store = pkcs12.serialize_key_and_certificates(
            b"client",
            private,
            x509.load_pem_x509_certificate(certificate),
            None,
            serialization.BestAvailableEncryption(b"secret"),
        )
        (tmp_path / "client.p12").write_bytes(store)
        cluster.create_topic("mutual", 2)
        produce(cluster, "mutual", [1, 1])
        keys = {
            "ssl.certificate.location": None,
            "ssl.key.location": None,
            "ssl.keystore.location": str(tmp_path / "client.p12"),
            "ssl.keystore.password": "secret",
        }
        consumer = crew.add("a", configuration=keys)
        consumer.subscribe(["mutual"])
        crew.until(lambda: len(crew.messages["a"]) == 2, "both records")
        consumer.commit(asynchronous=False)


def limit_to(secured: KafkaCluster, topic: str, right: AclOperation) -> None:
    """Allow one operation to the members' user."""
    config = secured.client_config()
    user = f"User:{config['sasl.username']}"
    acl = AclBinding(
        *(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, user, "*"),
        *(right, AclPermissionType.ALLOW),
    )
    admin = AdminClient(dict(config))  # a reference: garbage collection fails its futures
    admin.create_acls([acl])[acl].result(60)


@pytest.mark.verify
def test_group_that_may_not_be_described_is_named(
    secured: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message blamed `bootstrap.servers`."""
    group, config = unique("denied"), secured.client_config()
    acl = AclBinding(
        *(ResourceType.GROUP, group, ResourcePatternType.LITERAL, "User:somebody else", "*"),
        *(AclOperation.ALL, AclPermissionType.ALLOW),
    )
    admin = AdminClient(dict(config))  # a reference: garbage collection fails its futures
    admin.create_acls([acl])[acl].result(60)
    server = config["bootstrap.servers"]
    rest = [f"--config={key}={value}" for key, value in config.items() if value != server]
    for command in (("group", "describe"), ("group", "migrate", "--check"), ("watch", "--json")):

        def is_denied(*command: str) -> bool:
            app.run([*command, group, "--bootstrap-server", server, *rest])
            said = capsys.readouterr().err
            assert "bootstrap.servers: got" not in said
            return f"GROUP: got '{group}', expected a group that this user may DESCRIBE" in said

        wait_for(partial(is_denied, *command), "the refusal", 20.0)  # rights spread a moment later


@pytest.mark.parametrize(
    ("right", "refused"),
    [(AclOperation.READ, "ring"), (AclOperation.WRITE, "listen")],
    ids=["read only", "write only"],
)
def test_members_without_rights_on_the_bell_warn_once_and_go_on(
    secured: KafkaCluster,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    right: AclOperation,
    refused: str,
) -> None:
    """The bell makes rounds quicker, and none depends on it."""
    topic, bell = unique("rights"), unique("bell")
    secured.create_topic(topic, 4)
    secured.create_topic(bell, 1)
    limit_to(secured, bell, right)
    errors: list[object] = []

    def rings(crew: Crew) -> int:
        return crew.members["a"].get_watermark_offsets(TopicPartition(bell, 0), timeout=10)[1]

    with Crew(secured, tmp_path) as crew:
        for name in "ab":
            more = {"coopgroup.bell.topic": bell, "error_cb": errors.append}
            crew.add(name, configuration=more).subscribe([topic])
            crew.until(lambda: crew.share((topic, 4)), "a fair share")
        rung = rings(crew) if right is AclOperation.WRITE else 0
        crew.remove("b")
        crew.until(lambda: crew.counts() == [4], "the other one goes")
        assert right is not AclOperation.WRITE or rings(crew) > rung
        produce(secured, topic, [1] * 4)
        crew.until(lambda: sum(map(len, crew.messages.values())) == 4, "all records")
    lines = [one.getMessage() for one in caplog.records if bell in one.getMessage()]
    assert lines
    assert all(f"action={refused}" in line.replace("'", "") for line in lines)
    assert all("bell_unavailable" in line for line in lines)
    assert len(lines) <= 2  # one of each member
    assert errors == []


def test_the_supervisor_leaves_with_the_credentials_of_its_member(
    secured: KafkaCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    topic = unique("supervised")
    secured.create_topic(topic, 1)
    inbox, outbox = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    monkeypatch.setenv(VARIABLE, f"{outbox.fileno()}:{os.fstat(outbox.fileno()).st_ino}")
    with inbox, outbox, Crew(secured, tmp_path) as crew:
        crew.add("a").subscribe([topic])
        crew.until(lambda: crew.counts() == [1], "it works")
        assert supervised.main([inbox.recv(1 << 20)]) == 0
        assert f"left group {crew.group_id}" in capfd.readouterr().err
        crew.until(lambda: bool(crew.telemetry("a", MembershipLost)), "the coordinator dropped it")
