"""Tests of BoltMQ's broker.toml: its settings for the deletion of segments."""

from __future__ import annotations

import pytest

from commitlake.schemas.layouts.boltmq.deletion_settings import BoltmqConf, is_boltmq_conf, parse_boltmq_conf
from commitlake.schemas.layouts.rocketmq.broker_conf import BrokerConf, BrokerConfError

SAMPLE = """
# cluster: broker's cluster configuration
[cluster]
name="BoltMQCluster"
broker_id=0
broker_role="SYNC_MASTER"
#namesrv_addrs=["127.0.0.1:9876"]

[broker]
# delete when, when to trigger the deletion of invalid message.
delete_when=04
auto_create_topic_enable=false

[store]
root_dir="{{HOME}}/store"
flush_disk_type="SYNC_FLUSH"
file_reserved_time=48

[log]
config_file_path="etc/seelog-broker.xml"
"""
"""The parts of BoltMQ's own sample that matter here; its zero before the 4 is no TOML."""


def test_the_sample_with_a_leading_zero_is_read() -> None:
    assert parse_boltmq_conf(SAMPLE) == BoltmqConf(BrokerConf(file_reserved_hours=48, delete_hours=(4,)))


def test_an_empty_file_gives_the_lower_of_broker_and_store_defaults() -> None:
    assert parse_boltmq_conf().deletion == BrokerConf(file_reserved_hours=48, delete_hours=(4,))


@pytest.mark.parametrize(("line_end", "comment"), [("\n", ""), ("\r\n", "  # at night")])
def test_the_earlier_deletion_of_broker_and_store_settings_is_used(line_end: str, comment: str) -> None:
    lines = ["[broker]", f"delete_when = 007{comment}", "[store]", "file_reserved_time = 0100", ""]
    found = parse_boltmq_conf(line_end.join(lines)).deletion
    assert (found.delete_hours, found.file_reserved_hours) == ((4, 7), 72)


def test_a_zero_means_the_default() -> None:
    assert parse_boltmq_conf("[broker]\ndelete_when=00\n[store]\nfile_reserved_time=0") == parse_boltmq_conf()


def test_a_slave_is_detected() -> None:
    assert parse_boltmq_conf('[cluster]\nbroker_role="SLAVE"').is_slave
    assert not parse_boltmq_conf(SAMPLE).is_slave


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[broker]\ndelete_when=24", "broker.delete_when: expected a number from 0 to 23, found 24"),
        ("[broker]\ndelete_when='04'", "broker.delete_when: expected a number from 0 to 23, found '04'"),
        ("[store]\nfile_reserved_time=-1", "store.file_reserved_time: expected a number from 0 to .*, found -1"),
        ("[store]\nfile_reserved_time=true", "found True"),
        ("[cluster]\nbroker_role='MASTER'", "cluster.broker_role: expected one of ASYNC_MASTER"),
        ("[cluster]\nbroker_role=1", "cluster.broker_role: expected one of"),
        ("store=1", "store: expected a TOML table, found 1"),
        ("fileReservedTime=72", "expected only the tables cluster, broker, store, log .* found 'fileReservedTime'"),
        ("deleteWhen=04;16", "expected BoltMQ's settings as TOML"),
    ],
)
def test_invalid_settings_are_refused(text: str, message: str) -> None:
    with pytest.raises(BrokerConfError, match=message):
        parse_boltmq_conf(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [(SAMPLE, True), ("  [ store ]", True), ("#[store]", False), ("fileReservedTime=72", False), ("", False)],
)
def test_toml_tables_distinguish_the_file_from_rocketmqs(text: str, expected: bool) -> None:
    assert is_boltmq_conf(text) is expected
