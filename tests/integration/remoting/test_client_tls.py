"""The client over TLS against a real broker, which serves both TLS and plain text with a certificate of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.connectors.rocketmq import Admin, ClientOptions, OutgoingMessage, Producer, Puller, UnreachableError
from tests.support.certificates import Certificates
from tests.support.topic_reading import make_topic, read_all


def test_messages_are_sent_and_pulled_over_tls(options: ClientOptions, topic: str, tmp_path: Path) -> None:
    settings = tmp_path / "tls.properties"
    settings.write_text("tls.test.mode.enable=true\n")
    encrypted = replace(options, tls_config=str(settings))
    body = bytes(3000)  # not compressed; all of them are more than a record of TLS
    with Admin(encrypted) as admin:
        make_topic(admin, topic, 1)
    with Producer("tls-producer", encrypted) as producer:
        for number in range(20):
            producer.send(OutgoingMessage(topic, body + bytes([number])))
        assert all(connection._tls is not None for connection in producer.network._connections.values())
    with Puller("tls-puller", encrypted) as puller:
        assert [message.body[-1] for message in read_all(puller, topic, 20)] == list(range(20))


def test_an_untrusted_certificate_is_refused(options: ClientOptions, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    settings = certificates.write("tls.properties", f"tls.client.trustCertPath={certificates.path('authority')}\n")
    with Admin(replace(options, tls_config=str(settings))) as admin, pytest.raises(UnreachableError, match="signed"):
        admin.clusters()
