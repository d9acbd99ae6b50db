"""The files that a test broker reads: `server.properties` and certificates.

Brokers of a cluster differ only in id and ports. Listeners:

- INTERNAL: plaintext on loopback; for brokers, Kafka's tools and the cluster's administration. If
  no security is configured, clients use it, too.
- CLIENT: only with security; `bootstrap_servers` and `client_config` then refer to it.
- CONTROLLER: the KRaft quorum.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

from attrs import frozen

from coopgroup.errors import ConfigurationError, ToolMissingError
from coopgroup.printable import host_and_port

BROKERS_MAX = 3
LOOPBACK = ("127.0.0.1", "::1")

Security = Literal["SASL_PLAINTEXT", "SASL_SSL", "SSL"]
"""How clients talk to the cluster; SASL is SCRAM-SHA-256, SSL is mutual TLS."""

SECURITY_NAMES: tuple[str, ...] = get_args(Security)

# Settings of the cluster itself. A different value would break start, stop or admin access.
OWN_PROPERTIES = frozenset(
    {
        "advertised.listeners",
        "controller.listener.names",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
    }
)


@frozen(kw_only=True)
class BrokerAddress:
    """Id and loopback ports of one broker, constant over restarts.

    Attributes:
        broker_id: from 1.
        client_port: listener of clients; the internal listener without security.
        host: a loopback address, of IPv4 or IPv6.
    """

    broker_id: int
    internal_port: int
    client_port: int
    controller_port: int
    host: str = "127.0.0.1"

    @property
    def bootstrap(self) -> str:
        """Address for clients."""
        return self.at(self.client_port)

    @property
    def internal_bootstrap(self) -> str:
        """Address for tools and administration."""
        return self.at(self.internal_port)

    def at(self, port: int) -> str:
        """Return host and port as Kafka writes them, with an address of IPv6 in brackets."""
        return host_and_port(self.host, port)


def voters(addresses: tuple[BrokerAddress, ...]) -> tuple[BrokerAddress, ...]:
    """Return the brokers that are also controllers.

    With three brokers all are controllers, so that any broker may die. With two controllers the
    quorum would stop when either dies. Of two brokers only the first is a controller, therefore,
    and the second may be killed freely.
    """
    return addresses if len(addresses) == BROKERS_MAX else addresses[:1]


def broker_properties(
    address: BrokerAddress,
    addresses: tuple[BrokerAddress, ...],
    *,
    log_dir: Path,
    security: Security | None,
    tls_folder: Path,
    user_properties: Mapping[str, str],
) -> dict[str, str]:
    """Return the settings of one broker: fast defaults, overridden by the user and the cluster."""
    return {
        **speed_properties(len(addresses)),
        **security_properties(security, tls_folder),
        **user_properties,
        **network_properties(address, addresses, security),
        "log.dirs": str(log_dir),
    }


def speed_properties(broker_count: int) -> dict[str, str]:
    """Return defaults that make a small cluster start and react quickly."""
    replicas = str(min(BROKERS_MAX, broker_count))
    return {
        "auto.create.topics.enable": "false",
        # A dead broker is detected, and its group coordinator moved, after 3 s instead of 9 s.
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
        "default.replication.factor": "1",
        # Groups do not wait for their first members (KIP-134), and may have short session timeouts.
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        # The default needs 128 MB of heap in each broker.
        "log.cleaner.dedupe.buffer.size": "4194304",
        "num.io.threads": "4",
        "num.network.threads": "2",
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": replicas,
    }


def security_properties(security: Security | None, tls_folder: Path) -> dict[str, str]:
    """Return the settings of the CLIENT listener."""
    properties: dict[str, str] = {}
    if security in ("SSL", "SASL_SSL"):
        # KIP-651: PEM files, so that Java, librdkafka and Python share one set of files.
        properties |= {
            "ssl.keystore.location": str(tls_folder / "server.pem"),
            "ssl.keystore.type": "PEM",
            "ssl.truststore.location": str(tls_folder / "ca.pem"),
            "ssl.truststore.type": "PEM",
        }
    if security == "SSL":
        properties["ssl.client.auth"] = "required"
    if security in ("SASL_PLAINTEXT", "SASL_SSL"):
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        properties |= {
            "listener.name.client.scram-sha-256.sasl.jaas.config": scram,
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        }
    return properties


def network_properties(
    address: BrokerAddress,
    addresses: tuple[BrokerAddress, ...],
    security: Security | None,
) -> dict[str, str]:
    """Return role, quorum and listeners of one broker."""
    quorum = voters(addresses)
    listeners = [f"INTERNAL://{address.internal_bootstrap}"]
    protocols = ["INTERNAL:PLAINTEXT", "CONTROLLER:PLAINTEXT"]
    if security is not None:
        listeners.append(f"CLIENT://{address.bootstrap}")
        protocols.append(f"CLIENT:{security}")
    advertised = tuple(listeners)
    is_voter = address in quorum
    if is_voter:
        listeners.append(f"CONTROLLER://{address.at(address.controller_port)}")
    return {
        "advertised.listeners": ",".join(advertised),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(
            f"{voter.broker_id}@{voter.at(voter.controller_port)}" for voter in quorum
        ),
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": ",".join(protocols),
        "listeners": ",".join(listeners),
        "node.id": str(address.broker_id),
        "process.roles": "broker,controller" if is_voter else "broker",
    }


def check_security(security: str | None) -> None:
    """Refuse an unknown kind of security.

    Raises:
        ConfigurationError: it is not in `Security`.
    """
    if security is not None and security not in SECURITY_NAMES:
        raise ConfigurationError(
            "security", security, f"None or one of {', '.join(SECURITY_NAMES)}"
        )


def check_user_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of the user's broker settings.

    Raises:
        ConfigurationError: a setting belongs to the cluster, or a value is not a string of one
            line.
    """
    checked: dict[str, str] = {}
    for key in sorted(properties):
        value = properties[key]
        if key in OWN_PROPERTIES:
            raise ConfigurationError(
                "properties", key, "a setting that the cluster does not decide itself"
            )
        if not isinstance(value, str) or "\n" in value:
            # Show the type only, because the value may be the password of a key store.
            kind = f"({type(value).__name__})"
            raise ConfigurationError(f"properties[{key!r}]", kind, "a string of one line")
        checked[key] = value
    return checked


def render_properties(properties: Mapping[str, str]) -> str:
    """Return the text of a `.properties` file, sorted by key; a backslash is doubled for Java."""
    return "".join(f"{key}={properties[key]}\n".replace("\\", "\\\\") for key in sorted(properties))


def write_certificates(folder: Path) -> None:
    """Write `ca.pem`, `server.pem` (key and chain), `client.crt` and `client.key`.

    The keys are P-256: their creation takes a millisecond, RSA would take half a second.

    Raises:
        ToolMissingError: the Python package `trustme` is not installed.
    """
    if find_spec("trustme") is None:
        raise ToolMissingError("the Python package trustme", "pip install trustme")
    # Imported late: only clusters with TLS need it, and coopgroup does not depend on it.
    import trustme  # noqa: PLC0415

    folder.mkdir(mode=0o700)
    authority = trustme.CA()
    server = authority.issue_cert("localhost", *LOOPBACK, common_name="localhost")
    client = authority.issue_cert("client.test", common_name="coopgroup test client")
    ca_pem = authority.cert_pem.bytes()
    (folder / "ca.pem").write_bytes(ca_pem)
    (folder / "server.pem").write_bytes(
        _pkcs8(server.private_key_pem.bytes()) + server.cert_chain_pems[0].bytes() + ca_pem
    )
    (folder / "client.crt").write_bytes(client.cert_chain_pems[0].bytes())
    (folder / "client.key").write_bytes(_pkcs8(client.private_key_pem.bytes()))


def _pkcs8(key_pem: bytes) -> bytes:
    """Return a private key as unencrypted PKCS#8, the only form that Kafka's PEM store reads."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - trustme needs it

    return serialization.load_pem_private_key(key_pem, password=None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
