"""The table of connection settings."""

from confluent_kafka import Consumer, KafkaException

from coopgroup.kafka.connection_keys import CONNECTION_SETTINGS, Verdict


def test_every_setting_exists_in_librdkafka() -> None:
    """The table holds no key that confluent-kafka would not know (or build without)."""
    unknown = []
    for key in sorted(CONNECTION_SETTINGS):
        try:
            Consumer({"group.id": "g", key: "no such value"}).close()
        except KafkaException as error:
            if "No such configuration property" in str(error):
                unknown.append(key)
        except (TypeError, ValueError):
            continue
    # OpenSSL engines and the Windows stores are left out of some builds of librdkafka.
    assert unknown == []


def test_every_setting_has_a_reason_when_it_is_not_honoured() -> None:
    """The documentation can say why for every key."""
    without = [
        key
        for key, setting in CONNECTION_SETTINGS.items()
        if setting.verdict is not Verdict.HONOURED and not setting.reason
    ]
    assert without == []
