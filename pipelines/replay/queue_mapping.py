"""Assigns each message to a queue of the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.origin_properties import original_topics
from commitlake.pipelines.replay.plan import QueueMapping, Target
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.rocketmq.key_hashes import java_hash
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, RETRY_PREFIX
from commitlake.schemas.remoting.routes import MessageQueue

SHARDING_KEY = "__SHARDINGKEY"


def target_topics(rows: pa.Table, topic: str | None) -> pa.Array:
    """Return the topic to which each message is sent.

    Args:
        rows: `topic`, `origin_topic` and `properties` of `messages`.
        topic: the topic for all messages; None for the original topic of each, also of dead letters and retries.

    Raises:
        ReplayError: if the original topic of a dead letter is not known.
    """
    if topic is not None:
        return pa.repeat(pa.scalar(topic), rows.num_rows)
    stored = rows.column("topic").cast(pa.string()).combine_chunks()
    failed = pc.or_(pc.starts_with(stored, DLQ_PREFIX), pc.starts_with(stored, RETRY_PREFIX))
    if not pc.any(failed).as_py():
        return stored
    found = pc.if_else(failed, original_topics(rows), stored)
    if found.null_count:
        row = int(np.flatnonzero(np.asarray(pc.is_null(found)))[0])
        raise ReplayError(
            f"the original topic of message {rows.column('msg_id')[row].as_py()} in the topic {stored[row].as_py()} is "
            "not known: give a topic with --to-topic"
        )
    return found


def target_queues(rows: pa.Table, topics: pa.Array, target: Target, queues: Sequence[MessageQueue]) -> Array:
    """Return, for each message, the index of its queue in `queues`.

    Args:
        rows: rows of `messages`, see `plan_part_rows.COLUMNS`.
        topics: topics in the target, from `target_topics`.
        target: target of the plan.
        queues: queues of the target, in order.

    Raises:
        ReplayError: if the target lacks a topic or a queue.
    """
    by_topic: dict[str, list[int]] = {}
    for number, queue in enumerate(queues):
        by_topic.setdefault(queue.topic, []).append(number)
    coded = topics.dictionary_encode()
    names = coded.dictionary.to_pylist()
    for name in names:
        if name not in by_topic:
            raise ReplayError(
                f"the target has no topic {name}, or had no queue of it when the replay was planned: create the "
                "topic, or plan a new replay",
                exit_code=ExitCode.REFUSED,
            )
    codes = np.asarray(coded.indices).astype(np.int64)
    found = np.zeros(len(codes), np.int64)
    for code, name in enumerate(names):
        chosen = np.flatnonzero(codes == code)
        some = rows.take(pa.array(chosen))
        numbers = by_topic[name]
        if target.mapping is QueueMapping.SAME:
            found[chosen] = _queues_of_same_number(some, {queues[number]: number for number in numbers})
        else:
            found[chosen] = np.asarray(numbers)[_order_hashes(some, target.mapping) % len(numbers)]
    return found


def _queues_of_same_number(rows: pa.Table, queue_indexes: Mapping[MessageQueue, int]) -> Array:
    """Return the index of the target queue with each message's queue number, on the same-named broker if possible."""
    by_place = {(queue.broker_name, queue.queue_id): number for queue, number in queue_indexes.items()}
    brokers = sorted({queue.broker_name for queue in queue_indexes})
    coded = rows.column("broker").cast(pa.string()).combine_chunks().dictionary_encode()
    names = coded.dictionary.to_pylist()
    # A store whose name the target does not have is always assigned to the same broker.
    hosts = [name if name in brokers else brokers[abs(java_hash(name)) % len(brokers)] for name in names]
    queue_ids = rows.column("queue_id").to_numpy()
    codes = np.asarray(coded.indices).astype(np.int64)
    places, place_of_row = np.unique(np.stack([codes, queue_ids]), axis=1, return_inverse=True)
    numbers = []
    for code, queue_id in places.T.tolist():
        number = by_place.get((hosts[code], queue_id))
        if number is None:
            known = sum(broker == hosts[code] for broker, _ in by_place)
            raise ReplayError(
                f"broker {names[code]} has a queue {queue_id} of the topic, but the target has only "
                f"{format_count(known, 'queue')} on {hosts[code]}: give the topic more queues there, or choose "
                "--queues key",
                exit_code=ExitCode.REFUSED,
            )
        numbers.append(number)
    result: Array = np.asarray(numbers, np.int64)[place_of_row.reshape(-1)]
    return result


def _order_hashes(rows: pa.Table, mapping: QueueMapping) -> Array:
    """Return the hash by which each message's queue is chosen, equal for messages that must stay in order."""
    if mapping is QueueMapping.SHARDING_KEY:
        entries = rows.column("properties").combine_chunks()
        key = pc.map_lookup(entries, pa.scalar(SHARDING_KEY, entries.type.key_type), "last").cast(pa.string())
    else:
        key = _first_keys(rows.column("keys").combine_chunks())
    # Messages without a key keep the order of their own queue.
    own = pc.binary_join_element_wise(
        rows.column("broker").cast(pa.string()).combine_chunks(),
        rows.column("topic").cast(pa.string()).combine_chunks(),
        rows.column("queue_id").cast(pa.string()).combine_chunks(),
        "/",
    )
    coded = pc.coalesce(key, own).dictionary_encode()
    hashes = np.asarray([abs(java_hash(text)) for text in coded.dictionary.to_pylist()], np.int64)
    found: Array = hashes[np.asarray(coded.indices)]
    return found


def _first_keys(key_lists: pa.ListArray) -> pa.Array:
    lengths = np.asarray(pc.fill_null(pc.list_value_length(key_lists), 0))
    firsts = np.zeros(len(key_lists), np.int64)
    np.cumsum(lengths[:-1], out=firsts[1:])
    has_key = lengths > 0
    places = pa.array(firsts, mask=~has_key)
    return key_lists.flatten().cast(pa.string()).take(places)
