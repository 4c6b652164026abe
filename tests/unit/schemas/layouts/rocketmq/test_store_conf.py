"""Settings of a store in a broker's settings file."""

from __future__ import annotations

import pytest

from commitlake.schemas.layouts.rocketmq.broker_conf import BrokerConfError
from commitlake.schemas.layouts.rocketmq.store_conf import StoreConf, parse_store_conf
from commitlake.schemas.layouts.rocketmq.topics import split_offset_key

CONF = """
brokerName=broker-b
messageDelayLevel=1s 5m
mappedFileSizeCommitLog=16777216
mappedFileSizeConsumeQueue=20000
mapperFileSizeBatchConsumeQueue=4600
maxHashSlotNum=100
maxIndexNum=400
maxMessageSize=65536
flushDiskType=SYNC_FLUSH
listenPort=10911
"""


def test_a_broker_conf_determines_the_layout_of_the_files() -> None:
    assert parse_store_conf(CONF) == StoreConf(
        "broker-b", (1000, 300_000), 1 << 24, 20_000, 4600, 100, 400, 65_536, is_flush_sync=True
    )


def test_keys_that_are_not_set_are_none() -> None:
    assert parse_store_conf("") == StoreConf()


def test_the_broker_name_is_read_from_boltmqs_settings() -> None:
    assert parse_store_conf('[cluster]\nbroker_name="bolt-a"\n') == StoreConf(broker_name="bolt-a")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("messageDelayLevel=soon", "messageDelayLevel: expected delays"),
        ("messageDelayLevel=" + "9" * 5000 + "s", "messageDelayLevel: expected delays"),
        ("maxIndexNum=0", "maxIndexNum: expected a whole number from 1"),
        ("mappedFileSizeCommitLog=1g", "mappedFileSizeCommitLog: expected a whole number"),
        ("flushDiskType=sync", "flushDiskType: expected ASYNC_FLUSH or SYNC_FLUSH, found 'sync'"),
        ("[cluster]\nbroker_name=7", "cluster.broker_name: expected a string, found 7"),
    ],
)
def test_values_that_a_broker_would_refuse_are_refused(line: str, expected: str) -> None:
    with pytest.raises(BrokerConfError, match=expected):
        parse_store_conf(line)


def test_the_first_at_sign_separates_topic_and_group() -> None:
    assert split_offset_key("orders@billing") == ("orders", "billing")
    assert split_offset_key("one_queue@g_broadcast@broadcast") == ("one_queue", "g_broadcast@broadcast")
