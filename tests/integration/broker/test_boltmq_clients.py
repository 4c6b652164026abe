"""RocketMQ's own client against broker_lite with a store in BoltMQ's dialect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.schemas.layouts.boltmq.dialect import Magic
from tests.servers.broker_lite import QUICK_DELAYS, SMALL_FILES, BrokerLite
from tests.servers.java_programs import JavaProgramError, run_java
from tests.servers.rocketmq import VERSIONS
from tests.support.java_consumers import VOLUME, consume, keys
from tests.support.message_stores import log_records


@pytest.fixture
def client_version() -> str:
    """The newest client alone, which takes no magic but RocketMQ's."""
    return VERSIONS[0]


@pytest.fixture
def broker_lite(tmp_path: Path) -> Iterator[BrokerLite]:
    """A broker on a new store in BoltMQ's dialect."""
    with BrokerLite(tmp_path / "broker", options=(*SMALL_FILES, *QUICK_DELAYS, "--layout", "boltmq")) as running:
        yield running


def test_consumers_get_the_messages_that_their_filter_selects(broker_lite: BrokerLite, client_version: str) -> None:
    sent = run_java(client_version, "ProduceEveryKind", [broker_lite.name_server_address, "volume"])
    assert keys(consume(broker_lite, client_version, "lite")) == keys(sent)
    for way, expression, tags in (
        ("concurrent", "Tag1 || Tag2", ("Tag1", "Tag2")),
        ("sql", "TAGS = 'Tag3'", ("Tag3",)),
    ):
        wanted = [row for row in sent if row["tags"] in tags]
        rows = consume(broker_lite, client_version, way, expression, messages=len(wanted))
        assert sorted(row["unique_key"] for row in rows) == sorted(row["unique_key"] for row in wanted)
    broker_lite.stop()
    records = list(log_records(broker_lite.store))
    assert {record.magic for record in records} == {Magic.BOLTMQ}
    assert len([record for record in records if record.topic == "EveryVolume"]) == VOLUME


def test_delayed_messages_are_stored_and_transactions_are_refused(broker_lite: BrokerLite, client_version: str) -> None:
    run_java(client_version, "ProduceEveryKind", [broker_lite.name_server_address, "delay"])
    with pytest.raises(JavaProgramError, match="because BoltMQ does not support transactions"):
        run_java(client_version, "ProduceEveryKind", [broker_lite.name_server_address, "transaction"])
    broker_lite.stop()
    topics = {record.topic for record in log_records(broker_lite.store)}
    assert topics >= {"SCHEDULE_TOPIC_XXX", "EveryDelay"}
    assert not any(topic.startswith("RMQ_SYS_TRANS") for topic in topics)
