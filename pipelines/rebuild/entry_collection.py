"""The first pass: reads a range of the log, and writes its queue entries and keys to a part file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from commitlake.connectors.log_format.indexes import IndexData
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.index_data.log_range_reader import read_index_data
from commitlake.connectors.reading.index_data.queue_entries import group_entries_by_queue
from commitlake.connectors.reading.index_data.topic_kinds import collect_batch_evidence, is_valid_folder_name
from commitlake.connectors.reading.splits import Split
from commitlake.pipelines.rebuild.index_entries import append_tags_hashes
from commitlake.pipelines.rebuild.part_files import (
    KeyBlock,
    PartTable,
    PartWriter,
    Queue,
    QueueBlock,
    RecordKeys,
    Totals,
    read_part_table,
)
from commitlake.pipelines.rebuild.settings import Settings
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import BatchEvidence


@dataclass(frozen=True, slots=True)
class CollectTask:
    """Task that reads one range of the log, and writes its queue entries and keys to a temporary part file.

    Attributes:
        split: the range.
        settings: the broker's settings.
        path: path of the part file.
    """

    split: Split
    settings: Settings
    path: str


@dataclass(frozen=True, slots=True)
class CollectedRange:
    """Summary of the part file for one range of the log: numbers of records, keys and queue entries.

    Attributes:
        totals: totals of its range.
        counts: number of entries by queue.
        evidence: simple topics that have inner batches.
    """

    totals: Totals
    counts: dict[Queue, int]
    evidence: dict[str, BatchEvidence]


def collect_range(task: CollectTask) -> CollectedRange:
    """Write the part file for a range of the log, unless an earlier run has written it, and return its summary.

    Raises:
        StoreError: if the file became shorter while it was read, or if the file cannot be read.
    """
    path = Path(task.path)
    table = read_part_table(path)
    if table is None:
        with PartWriter(path) as writer:
            collecting = _RangeCollector(writer, task.settings)
            for facts in read_index_data(task.split, delay_levels_ms=task.settings.delay_levels_ms):
                collecting.add_chunk(facts)
            table = collecting.write_table()
            writer.finish(table)
    return CollectedRange(table.totals, table.entry_counts_by_queue(), table.evidence)


@dataclass
class _QueueChunks:
    """Queue entries of one queue in a log range, collected chunk by chunk.

    Attributes:
        entries: uint8, the bytes of the entries.
        numbers: int64, the queue offsets of the entries.
        has_twice: True if a record has two entries.
    """

    entries: list[Array] = field(default_factory=list)
    numbers: list[Array] = field(default_factory=list)
    has_twice: bool = False


class _RangeCollector:
    """Collects the queue entries and index keys of one log range for its part file.

    It writes keys chunk by chunk, and queue entries at the end.
    """

    def __init__(self, writer: PartWriter, settings: Settings) -> None:
        self._writer = writer
        self._settings = settings
        self._wanted = None if settings.topics is None else frozenset(settings.topics)
        self._batch_topics = frozenset(settings.batch_topics)
        self._queues: dict[Queue, _QueueChunks] = {}
        self._evidence: dict[str, BatchEvidence] = {}
        self._keys: list[KeyBlock] = []
        self._totals = Totals()
        self._names: dict[str, bool] = {}

    def add_chunk(self, index_data: IndexData) -> None:
        """Collect the queue entries and keys of a chunk of the log."""
        totals = Totals(bad_ranges=len(index_data.bad), bad_bytes=sum(bad.end - bad.start for bad in index_data.bad))
        if index_data.record_count:
            refused = self._add_queue_entries(index_data)
            queued = np.flatnonzero(index_data.queued_mask)
            keyed = self._add_keys(index_data) if self._wanted is None else None
            totals = replace(
                totals,
                records=index_data.record_count,
                refused=refused,
                last_offset=int(index_data.physical_offset[-1]),
                last_time=int(index_data.store_timestamp[-1]),
                last_end=int(index_data.physical_offset[-1] + index_data.size[-1]),
                queued_offset=int(index_data.physical_offset[queued[-1]]) if len(queued) else -1,
                queued_time=int(index_data.store_timestamp[queued[-1]]) if len(queued) else 0,
                keys=0 if keyed is None else len(keyed.hashes),
                last_keyed=-1 if keyed is None else int(keyed.offsets[-1]),
            )
        self._totals = self._totals.join_with_later(totals)

    def _add_queue_entries(self, index_data: IndexData) -> int:
        refused = 0
        batches = index_data.physical_offset[index_data.batch_mask]
        for columns in group_entries_by_queue(index_data, includes_light_queues=self._settings.may_have_light_queues):
            queue = Queue(columns.topic, columns.queue_id, columns.topic in self._batch_topics)
            if not self._is_valid_queue(queue):
                refused += len(columns)
                continue
            if self._wanted is not None and queue.topic not in self._wanted:
                continue
            if len(batches) and not queue.is_batch:
                self._add_batch_evidence(queue.topic, collect_batch_evidence(columns, batches))
            rows = self._queues.setdefault(queue, _QueueChunks())
            entries = self._settings.queues_of_kind(is_batch=queue.is_batch).to_entries(columns)
            # As bytes, because numpy would change the byte order when it concatenates.
            rows.entries.append(entries.view(np.uint8))
            rows.numbers.append(columns.queue_offset)
            # A record can name a light queue twice; a broker enters it once.
            rows.has_twice |= not (np.diff(columns.physical_offset) > 0).all()
        return refused

    def _add_batch_evidence(self, topic: str, evidence: BatchEvidence) -> None:
        if evidence.batches:
            self._evidence[topic] = self._evidence.get(topic, BatchEvidence()).joined(evidence)

    def _is_valid_queue(self, queue: Queue) -> bool:
        known = self._names.get(queue.topic)
        if known is None:
            known = self._names[queue.topic] = self._is_queue_topic(queue.topic)
        return known and queue.queue_id >= 0

    def _is_queue_topic(self, topic: str) -> bool:
        return is_valid_folder_name(topic) and self._settings.queue_layout.has_queues(topic)

    def _add_keys(self, index_data: IndexData) -> RecordKeys | None:
        """Write the keys of a chunk's records to the part file, in the order in which brokers index them."""
        hashes, ends = index_data.key_hashes, index_data.key_ends
        if self._settings.index_tags:
            tags = index_data.tags_hash
            together = np.empty(len(hashes) + int((tags >= 0).sum()), np.int32)
            with_tags = np.empty(index_data.record_count, np.int32)
            append_tags_hashes(hashes, ends, tags, together, with_tags)
            hashes, ends = together, with_tags
        if not len(hashes):
            return None
        rows = np.flatnonzero(np.diff(ends, prepend=0))
        keys = RecordKeys(
            index_data.physical_offset[rows], index_data.store_timestamp[rows], ends[rows].astype(np.int64), hashes
        )
        self._keys.append(self._writer.write_record_keys(keys))
        return keys

    def write_table(self) -> PartTable:
        """Write the collected queue entries to the part file, and return its table of contents."""
        queues = {queue: self._write_queue_entries(rows) for queue, rows in self._queues.items()}
        return PartTable(self._totals, queues, tuple(self._keys), self._evidence)

    def _write_queue_entries(self, chunks: _QueueChunks) -> QueueBlock:
        entries, numbers = np.concatenate(chunks.entries), np.concatenate(chunks.numbers)
        plain = not chunks.has_twice and int(numbers[0]) >= 0 and bool((np.diff(numbers) == 1).all())
        return self._writer.write_queue_entries(entries, numbers, are_consecutive=plain)
