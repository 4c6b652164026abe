"""Messages of a replay, counted by a Java consumer and compared with the lake and the ledger."""

from __future__ import annotations

from itertools import chain
from typing import Any

from deltalake import DeltaTable

from tests.servers.java_programs import count_origins
from tests.servers.rocketmq import RocketMQ
from tests.support.replays import ReplayWorld


def check_each_once_in_order(world: ReplayWorld, servers: RocketMQ, queues: int) -> None:
    """Check that all messages of the lake are in the topic once, in the order of their queues, as the ledger says.

    Args:
        queues: number of the topic's queues, which are those of the archived topics, too.
    """
    rows = in_log_order(world.lake.uri("messages"), ["physical_offset", "msg_id", "queue_id"])
    expected: dict[int, list[tuple[int, str]]] = {queue: [] for queue in range(queues)}
    for offset, message_id, queue in zip(*rows.values(), strict=True):
        expected[queue].append((offset, message_id))
    found = {
        row["queue_id"]: list(zip(row["offsets"], row["ids"], strict=True))
        for row in count_origins(servers, world.topic)
    }
    assert {queue: len(origins) for queue, origins in found.items()} == {
        queue: len(origins) for queue, origins in expected.items()
    }
    assert found == expected
    assert len({message_id for _, message_id in chain(*found.values())}) == len(rows["msg_id"])
    ledger = in_log_order(world.lake.uri("replay_messages"), ["physical_offset", "target_queue_id", "target_offset"])
    assert ledger["physical_offset"] == rows["physical_offset"]
    places = dict(
        zip(
            zip(ledger["target_queue_id"], ledger["target_offset"], strict=True), ledger["physical_offset"], strict=True
        )
    )
    assert places == {(queue, number): origin for queue in found for number, (origin, _) in enumerate(found[queue])}


def in_log_order(table: str, columns: list[str]) -> dict[str, list[Any]]:
    """Return columns of a table of the lake, in the order of the archived log."""
    rows = DeltaTable(table).to_pyarrow_table(columns=columns).sort_by("physical_offset")
    return {name: rows.column(name).to_pylist() for name in columns}
