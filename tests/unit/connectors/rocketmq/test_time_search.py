"""The search for the first offset of a time in a queue, for any answer of a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from commitlake.connectors.rocketmq import ClientOptions, Puller
from commitlake.connectors.rocketmq.time_search import first_offset_at
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.routes import MessageQueue
from tests.support.live_brokers import LiveCluster
from tests.support.live_reading import create_topic
from tests.support.message_stores import message
from tests.support.peer import reply

QUEUE = MessageQueue("orders", "broker-a", 0)
# Seconds after the first: three of one time, and forty of another, which is more than an answer holds.
TIMES = (0, 1, 1, 1, 2, *[5] * 40, 7, 9)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path_factory.mktemp("times")) as made:
        broker = made.brokers["broker-a"]
        create_topic(broker, queues=1)
        begin = made.clock.now_ms
        for number, seconds in enumerate(TIMES):
            made.clock.now_ms = begin + seconds * 1000
            broker.store.put(message(number))
        made.clock.now_ms = begin
        yield made


@pytest.mark.parametrize("answer", [None, 0, 2, 20, len(TIMES) - 1, len(TIMES)])
@pytest.mark.parametrize("seconds", [-1, 0, 1, 2, 3, 5, 6, 9, 10])
def test_the_first_message_of_a_time_is_found_from_any_answer(
    cluster: LiveCluster, answer: int | None, seconds: int
) -> None:
    broker = cluster.brokers["broker-a"]
    broker.interfere = lambda request: (
        reply(request, offset=str(answer))
        if answer is not None and request.code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        else None
    )
    expected = next((place for place, time in enumerate(TIMES) if time >= seconds), len(TIMES))
    with Puller("TOOLS_CONSUMER", ClientOptions(cluster.address)) as puller:
        found = first_offset_at(puller, QUEUE, cluster.clock.now_ms + seconds * 1000, 0, len(TIMES))
        assert found == expected
        assert first_offset_at(puller, QUEUE, 0, 7, 7) == 7
