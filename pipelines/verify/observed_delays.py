"""Delays of the delay levels, read from a store's own schedule queues.

The queue entry of a delayed message contains its delivery time: store time plus the delay of its level. The difference
between the two is therefore the level's delay, whatever `messageDelayLevel` the broker was started with, and no
settings file is needed to check or rebuild these entries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from commitlake.connectors.log_format.files import StoreFiles
from commitlake.connectors.log_format.queues import QueueLayout
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.files.concurrent_reads import map_concurrently
from commitlake.connectors.reading.files.store_files import choose_thread_count
from commitlake.connectors.reading.single_records import LogRecords
from commitlake.pipelines.verify.queue_files import QueueFiles
from commitlake.schemas.layouts.integer_parsing import INT64_MAX, int_in_range, parse_int
from commitlake.schemas.layouts.rocketmq.broker_conf import DEFAULT_DELAY_LEVELS_MS, DELAY_UNIT_MS

SAMPLE_ENTRIES = 64
"""Newest entries of each level that are read: enough for one damaged entry among them not to matter."""
MAX_DELAY_MS = 1_000 * 86_400_000
"""Larger differences are damage, not a configured delay."""
MAX_LEVELS = 1_000


def observe_delays(
    files: StoreFiles, queues: Sequence[tuple[str, int]], schedule_topic: str, file_size: int, layout: QueueLayout,
    records: LogRecords,
) -> dict[int, int]:  # fmt: skip
    """Return the delay of each level, measured at the newest entries of the delay topic's queues.

    Args:
        queues: Topic and queue id of every queue that has a folder.
        schedule_topic: The topic of delayed messages.
        file_size: Bytes of a queue file.
        records: The store's log.

    Returns:
        Milliseconds by level. A level without entries, or without a whole number of seconds in most of them, is
        left out.
    """

    def delay_of_queue(queue_id: int) -> int | None:
        delays = _observed_delays(QueueFiles(files, schedule_topic, queue_id, file_size, layout), records)
        if delays:
            delay, count = Counter(delays).most_common(1)[0]
            if 2 * count > len(delays):
                return delay
        return None

    queue_ids = [queue_id for topic, queue_id in queues if topic == schedule_topic and 0 <= queue_id < MAX_LEVELS]
    delays = map_concurrently(delay_of_queue, queue_ids, choose_thread_count(files))
    return {queue_id + 1: delay for queue_id, delay in zip(queue_ids, delays, strict=True) if delay is not None}


def _observed_delays(files: QueueFiles, records: LogRecords) -> list[int]:
    end = files.find_written_end()
    first = max(files.first_number, end - SAMPLE_ENTRIES)
    delays = []
    for begin, stop, is_there in files.split_by_file(first, end):
        if not is_there:
            continue
        for number, entry in enumerate(files.read_entries(begin, stop), begin):
            message = records.get_record(int(entry["physical_offset"]))
            if message is None or (message.topic, message.queue_id, message.queue_offset) != (
                files.topic, files.queue_id, number,
            ):  # fmt: skip
                continue
            delays.append(int(entry["tags_code"]) - message.store_timestamp)
    return [delay for delay in delays if is_plausible_delay(delay)]


def is_plausible_delay(difference_ms: int) -> bool:
    """Return whether a time between storing and delivery, in ms, can be a configured delay.

    A flipped bit changes a delivery time by a power of two, which is never a whole number of seconds.
    """
    return 0 < difference_ms <= MAX_DELAY_MS and difference_ms % DELAY_UNIT_MS == 0


def are_plausible_delays(differences_ms: Array) -> Array:
    """Return a mask of the times between storing and delivery, in ms, that can be configured delays."""
    can_be: Array = (differences_ms > 0) & (differences_ms <= MAX_DELAY_MS) & (differences_ms % DELAY_UNIT_MS == 0)
    return can_be


def complete_delay_levels(observed: Mapping[int, int]) -> tuple[int, ...]:
    """Return the delays of all levels: the observed ones, and RocketMQ's defaults for the others.

    A level above the defaults that was not observed gets the delay of the level below it.
    """
    count = max(len(DEFAULT_DELAY_LEVELS_MS), *observed, 0)
    delays = np.zeros(count, np.int64)
    for place in range(count):
        default = DEFAULT_DELAY_LEVELS_MS[place] if place < len(DEFAULT_DELAY_LEVELS_MS) else int(delays[place - 1])
        delays[place] = observed.get(place + 1, default)
    return tuple(delays.tolist())


def read_archived_delays(settings: Mapping[str, object]) -> tuple[int, ...] | None:
    """Return the delays of all levels from rows of `store_config`; None if they contain none.

    Args:
        settings: A store's settings.

    Returns:
        The delays, with RocketMQ's defaults for levels that the table does not have; None if it has no levels.
    """
    known = parse_archived_delays(settings)
    return complete_delay_levels(known) if known else None


def parse_archived_delays(settings: Mapping[str, object]) -> dict[int, int]:
    """Parse the delay of each level in rows of `store_config`; empty if there are no valid ones.

    Args:
        settings: A store's settings.
    """
    found = settings.get("delay_levels_ms")
    if not isinstance(found, dict):
        return {}
    return {
        level: delay
        for text, value in found.items()
        if (level := parse_int(text, 1, MAX_LEVELS)) and (delay := int_in_range(value, 1, INT64_MAX))
    }


def nondefault_levels(observed: Mapping[int, int]) -> tuple[int, ...]:
    """Return the levels whose delay is not RocketMQ's default."""
    defaults = dict(enumerate(DEFAULT_DELAY_LEVELS_MS, 1))
    return tuple(sorted(level for level, delay in observed.items() if defaults.get(level) != delay))
