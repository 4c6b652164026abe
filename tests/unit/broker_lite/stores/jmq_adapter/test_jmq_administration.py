"""Administration of a broker whose store has JMQ's layout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.broker.store_layouts import FileLayout, detect_layouts
from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.broker_lite.replication.options import ReplicationOptions, Role
from commitlake.broker_lite.replication.role import ReplicationRole
from commitlake.broker_lite.stores.jmq_adapter import JmqStore
from commitlake.broker_lite.stores.rocketmq import MessageStore, UnsupportedError
from commitlake.schemas.layouts.rocketmq.key_hashes import java_hash
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from tests.support.brokers import Peer, records
from tests.support.jmq_brokers import OPTIONS, commit, open_jmq_broker, pull, send, send_back
from tests.support.message_stores import SMALL
from tests.support.small_stores import Clock


def ask(peer: Peer, code: int, **fields: object) -> str:
    """Send a request, and return the text of the answer's body, which must exist."""
    answer = peer.ask(code, fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return bytes(answer.body).decode()


def test_there_are_no_internal_topics_of_rocketmq(peer: Peer) -> None:
    topics = ask(peer, RequestCode.GET_ALL_TOPIC_CONFIG)
    assert "TBW102" in topics
    assert not any(name in topics for name in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK"))


def test_settings_and_state_are_returned(peer: Peer) -> None:
    send(peer)
    assert "storeLayout=jmq\n" in ask(peer, RequestCode.GET_BROKER_CONFIG)
    table = json.loads(ask(peer, RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
    assert (table["msgPutTotalTodayNow"], table["commitLogMinOffset"]) == ("1", "0")
    assert int(table["commitLogMaxOffset"]) > 0
    assert json.loads(ask(peer, RequestCode.GET_ALL_DELAY_OFFSET)) == {"offsetTable": {}}


def test_progress_and_lag_are_returned(peer: Peer) -> None:
    for number in range(3):
        send(peer, number)
    pull(peer, "orders")
    commit(peer, "orders", 2)
    assert '"orders@consumers":{0:2}' in ask(peer, RequestCode.GET_ALL_CONSUMER_OFFSET)
    stats = ask(peer, RequestCode.GET_CONSUME_STATS, consumerGroup="consumers")
    assert '"brokerOffset":3' in stats
    assert '"consumerOffset":2' in stats
    assert "consumers" in ask(peer, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="orders")
    queue = ask(peer, RequestCode.QUERY_CONSUME_QUEUE, topic="orders", queueId=0, index=1, count=5)
    assert [entry["tagsCode"] for entry in json.loads(queue)["queueData"]] == [java_hash("tag1"), java_hash("tag2")]


def test_messages_are_found_by_position_and_time(peer: Peer, clock: Clock) -> None:
    first = send(peer, 1)
    clock.now_ms += 1000
    send(peer, 2)
    address = int(first.ext_fields["msgId"][-16:], 16)
    (found,) = records(peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": address}).body)
    assert found.body == b"body 1"
    assert peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": address + 1}).code == ResponseCode.SYSTEM_ERROR
    asked = {"topic": "orders", "queueId": 0, "timestamp": clock.now_ms - 500}
    assert peer.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, asked).ext_fields["offset"] == "1"


def test_groups_and_topics_survive_a_restart(root: Path, clock: Clock) -> None:
    dispatcher = open_jmq_broker(root, clock)
    with dispatcher.broker.store:
        peer = Peer(dispatcher)
        send(peer)
        send_back(peer, pull(peer, "orders")[0], delayLevel=-1)
    again = open_jmq_broker(root, clock)
    with again.broker.store:
        assert again.broker.topics.find("orders") is not None
        assert "consumers" in again.broker.store.config.groups.entries
    for name in ("topics.json", "topics.json.bak"):
        (root / "config" / name).unlink(missing_ok=True)
    # A broker that was killed before they were written has the topics of its queues.
    rest = open_jmq_broker(root, clock)
    with rest.broker.store:
        assert rest.broker.topics.find("orders") is not None
        assert rest.broker.topics.find("%DLQ%consumers") is not None


def test_offsets_can_be_cloned_to_another_group(peer: Peer, store: JmqStore) -> None:
    send(peer)
    pull(peer, "orders")
    commit(peer, "orders", 1)
    clone = {"srcGroup": "consumers", "destGroup": "others", "topic": "orders", "isOffline": False}
    assert peer.ask(RequestCode.CLONE_GROUP_OFFSET, clone).code == ResponseCode.SUCCESS
    assert store.config.consumer_offsets.get("orders", "others", 0) == 1


@pytest.mark.parametrize("role", [Role.SLAVE, Role.ASYNC_MASTER])
def test_replication_is_refused_for_a_journal(store: JmqStore, role: Role) -> None:
    options = ReplicationOptions(role=role, listen=None if role is Role.SLAVE else ("127.0.0.1", 0))
    with pytest.raises(UnsupportedError, match="replication needs a store in RocketMQ's layout"):
        ReplicationRole(store, BrokerOptions(), options, None)


def test_the_layout_of_a_folder_is_detected(tmp_path: Path, clock: Clock) -> None:
    assert detect_layouts(tmp_path) == tuple(FileLayout)
    with JmqStore.open(tmp_path / "jmq", OPTIONS, clock=clock):
        assert detect_layouts(tmp_path / "jmq") == (FileLayout.JMQ,)
    with MessageStore.open(tmp_path / "rocketmq", SMALL, clock=clock) as store:
        assert detect_layouts(tmp_path / "rocketmq") == (FileLayout.ROCKETMQ, FileLayout.BOLTMQ)
        assert Dispatcher(Broker(store, BrokerOptions())).broker.delivery.delay_level_count == 18
