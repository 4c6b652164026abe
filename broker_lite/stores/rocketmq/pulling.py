"""Pulls of records as they are in the log; a record is parsed only if a filter needs it.

Source: DefaultMessageStore.getMessage, isTheBatchFull.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from commitlake.broker_lite.stores.engine.queue_reader import (
    MAX_EXAMINED,
    GetStatus,
    PullLimits,
    PullResult,
    QueuePosition,
    locate_offset,
)
from commitlake.broker_lite.stores.rocketmq.batch_queue import BatchConsumeQueue
from commitlake.broker_lite.stores.rocketmq.store_files import StoreFiles
from commitlake.schemas.layouts.boltmq.dialect import BLANK_MAGICS, BOLTMQ, ROCKETMQ
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.commitlog import BLANK, convert_to_dialect
from commitlake.schemas.layouts.rocketmq.consumequeue import ENTRY
from commitlake.schemas.remoting.sql92 import PausedError

_UNFILTERED_OF_STEP = 16
_PRE_BLANK_SIZE = 0x7FFFFFFF


def pull_records(
    files: StoreFiles,
    topic: str,
    queue_id: int,
    queue_offset: int,
    limits: PullLimits,
    tag_codes: Container[int] | None,
    accepts_record: Callable[[bytes], bool] | None,
) -> PullResult:
    """Return records of a queue that match a filter, starting at a queue offset; the caller holds the store's lock.

    Args:
        topic: topic of the queue.
        queue_offset: offset of the first record.
        tag_codes: hashes of the wanted tags; None for all tags.
        accepts_record: function that returns whether a record matches; None if all records match. The pull is cut at a
            record for which it raises PausedError.
    """
    queue = files.queues.find(topic, queue_id)
    where = locate_offset(queue, files.log.start, queue_offset)
    if queue is None or where.status is not GetStatus.FOUND:
        return PullResult(where.status, [], *where[1:])
    if isinstance(queue, BatchConsumeQueue):
        return _pull_batches(files, queue, where, limits, tag_codes, accepts_record)
    low, high = where.min_offset, where.max_offset
    records: list[bytes] = []
    size = 0
    number = queue_offset
    is_cut = False
    for number in range(queue_offset, min(high, queue_offset + max(MAX_EXAMINED, limits.messages))):
        # Without a filter an entry takes a microsecond, and checking the clock each time would add a third.
        looks_at_clock = accepts_record is not None or not number % _UNFILTERED_OF_STEP
        if looks_at_clock and number > queue_offset and limits.is_deadline_passed:
            is_cut = True
            break
        physical_offset, record_size, code = ENTRY.struct.unpack_from(*queue.files.locate(number * ENTRY.size))
        if tag_codes is not None and not matches_tag_code(code, tag_codes):
            continue
        # A first record is returned whatever its size, or a consumer would never get past it.
        if records and (len(records) >= limits.messages or size + record_size > limits.bytes):
            break
        record = _record_at(files, physical_offset, record_size)
        try:
            if record is None or (accepts_record is not None and not accepts_record(record)):
                continue
        except PausedError:
            is_cut = True
            break
        records.append(convert_for_client(record))
        size += record_size
    else:
        # All were examined, so the next pull begins after the last one.
        number += 1
    status = GetStatus.FOUND if records else GetStatus.NO_MATCHED_MESSAGE
    return PullResult(status, records, number, low, high, is_cut)


def _pull_batches(
    files: StoreFiles,
    queue: BatchConsumeQueue,
    queue_position: QueuePosition,
    limits: PullLimits,
    tag_codes: Container[int] | None,
    accepts_record: Callable[[bytes], bool] | None,
) -> PullResult:
    """Return records of a BatchConsumeQueue; each counts as the number of messages in it."""
    records: list[bytes] = []
    size = messages = 0
    following = queue_position.next_offset
    is_cut = False
    for unit in queue.read_queue_units(queue_position.next_offset):
        if following > queue_position.next_offset and limits.is_deadline_passed:
            is_cut = True
            break
        physical_offset, record_size, code = unit.entry
        count = unit.following - unit.first_number
        if unit.first_number - queue_position.next_offset >= max(MAX_EXAMINED, limits.messages):
            following = unit.first_number  # after a gap in the queue
            break
        if records and (messages + count > limits.messages or size + record_size > limits.bytes):
            break
        following = unit.following
        if tag_codes is not None and not matches_tag_code(code, tag_codes):
            continue
        record = _record_at(files, physical_offset, record_size)
        try:
            if record is None or (accepts_record is not None and not accepts_record(record)):
                continue
        except PausedError:
            following, is_cut = unit.first_number, True
            break
        records.append(convert_for_client(record))
        size += record_size
        messages += count
    status = GetStatus.FOUND if records else GetStatus.NO_MATCHED_MESSAGE
    return PullResult(status, records, following, queue_position.min_offset, queue_position.max_offset, is_cut)


def matches_tag_code(code: int, tag_codes: Container[int]) -> bool:
    """Return whether a stored tag hash is among the wanted hashes; only its lower 32 bits are compared."""
    return low_32_bits(code) in tag_codes


def low_32_bits(code: int) -> int:
    """Return the lower 32 bits of a tag's hash as a signed integer."""
    return ((code + 0x80000000) & 0xFFFFFFFF) - 0x80000000


def convert_for_client(record: bytes) -> bytes:
    """Return a complete record with RocketMQ's magic, the only one that clients since 5.1 accept.

    A record with a damaged body is returned unchanged.
    """
    if BLANK.unpack(record)[1] == BOLTMQ.message:
        try:
            return convert_to_dialect(record, ROCKETMQ)
        except LayoutError:
            return record
    return record


def _record_at(files: StoreFiles, physical_offset: int, size: int) -> bytes | None:
    if size == _PRE_BLANK_SIZE or not files.log.start <= physical_offset < files.log.end:
        return None
    record = files.log.files.read(physical_offset, size)
    if len(record) < BLANK.size or BLANK.unpack(record)[0] != size or BLANK.unpack(record)[1] in BLANK_MAGICS:
        return None
    return record
