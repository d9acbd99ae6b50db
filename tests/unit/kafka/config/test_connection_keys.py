"""The table of connection settings."""

from confluent_kafka import Consumer, KafkaException

from coopgroup.kafka.config.connection_keys import CONNECTION_SETTINGS, Verdict


def test_every_setting_exists_in_librdkafka() -> None:
    unknown = []
    for key in sorted(CONNECTION_SETTINGS):
        try:
            Consumer({"group.id": "g", key: "no such value"}).close()
        except KafkaException as error:
            if "No such configuration property" in str(error):
                unknown.append(key)
        except (TypeError, ValueError):
            continue
    # Some builds of librdkafka lack OpenSSL engines and the Windows stores.
    assert unknown == []


def test_every_setting_has_a_reason_when_it_is_not_honoured() -> None:
    without = [
        key
        for key, setting in CONNECTION_SETTINGS.items()
        if setting.verdict is not Verdict.HONOURED and not setting.reason
    ]
    assert without == []
