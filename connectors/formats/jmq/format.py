"""JMQ's journal as a `Format`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from commitlake.connectors.log_format.format import (
    BrokerRules,
    Format,
    FormatIndexes,
    FormatQueues,
    FormatSmallFiles,
    StoreFolders,
)
from commitlake.connectors.log_format.records import RecordRules
from commitlake.schemas.layouts.segment_names import segment_name

if TYPE_CHECKING:
    from commitlake.connectors.log_format.checkpoint_and_config import (
        CheckedLog,
        CheckpointClaim,
        Problems,
        RebuiltLog,
        SmallFiles,
    )
    from commitlake.connectors.log_format.files import Segment, StoreFiles
    from commitlake.connectors.log_format.indexes import IndexDataReader
    from commitlake.connectors.log_format.kernel import FormatKernel
    from commitlake.connectors.log_format.queues import NewQueue, NewQueueFiles, QueueFormat, QueueLayout, QueueWriter
    from commitlake.connectors.log_format.recorded_deliveries import ConsumeLogPart, StoredRetries


class _JmqStoreFolders(StoreFolders):
    own = frozenset({"journal", "queue", "consume", "retry"})
    rebuilt = ("queue", "checkpoint")


class _JmqQueues(FormatQueues):
    folders = ("queue",)
    entry_sizes: Mapping[str, int] = MappingProxyType({"queue": 22})

    @cached_property
    def layout(self) -> QueueLayout:
        """Binary layout of the entries in the files of JMQ's queues."""
        from commitlake.connectors.formats.jmq.queue_entries import QUEUES

        return QUEUES

    @cached_property
    def lookup_queue_format(self) -> QueueFormat:
        """Description of the queue files, by which records are found without a scan of the journal."""
        from commitlake.connectors.formats.jmq.queue_format import QUEUE_FILES

        return QUEUE_FILES

    def walk_queue_entries(
        self, files: StoreFiles, topic: str | None, queue_id: int | None, report_damage: Callable[[str], None]
    ) -> Iterator[dict[str, object]]:
        """Yield the entries of a store's queues as rows, in order of topic, queue and offset."""
        from commitlake.connectors.formats.jmq.queue_files import walk_queue_files

        for found in walk_queue_files(files, report_damage, topic, queue_id):
            yield {
                "topic": found.topic,
                "queue_id": found.queue_id,
                "queue_offset": found.queue_offset,
                "physical_offset": found.entry.journal_offset,
                "size": found.entry.size,
            }

    def make_queue_writer(self, files: NewQueueFiles, queue: NewQueue) -> QueueWriter:
        """Return a writer that rebuilds the files of a queue."""
        from commitlake.connectors.formats.jmq.queue_writer import JournalQueueWriter

        return JournalQueueWriter(files, queue.log_start)


class _JmqIndexes(FormatIndexes):
    def make_index_data_reader(
        self,
        start_offset: int,
        delay_levels_ms: Sequence[int],  # noqa: ARG002
        chunk_rows: int,
    ) -> IndexDataReader:
        """Return a reader of the data in a range of a journal from which indexes are built."""
        from commitlake.connectors.formats.jmq.index_data import JournalReader

        return JournalReader(start_offset, chunk_rows)

    def no_key_index_reason(self, segments: Sequence[Segment]) -> str:  # noqa: ARG002
        """Return the reason why no index can be searched for keys: JMQ has none."""
        return "a journal has no index of keys"


class _JmqSmallFiles(FormatSmallFiles):
    counts_entries = True

    def read_small_files(self, root: Path, problems: Problems, *, is_live: bool) -> SmallFiles:
        """Read a store's checkpoint and offsets; report unreadable files as problems, and treat them as missing."""
        from commitlake.connectors.formats.jmq.checkpoint_and_config import read_small_files

        return read_small_files(root, problems, is_live=is_live)

    def check_checkpoint(self, log: CheckedLog, small_files: SmallFiles, problems: Problems) -> None:
        """Compare a checkpoint with the last record and, after a clean shutdown, with the number of queue entries."""
        from commitlake.connectors.formats.jmq.checkpoint_and_config import check_checkpoint

        check_checkpoint(log, small_files, problems)

    def new_checkpoint(self, root: Path, log: RebuiltLog) -> bytes:  # noqa: ARG002
        """Return a checkpoint that confirms all records as flushed, as after a clean shutdown."""
        from commitlake.connectors.formats.jmq.checkpoint_and_config import new_checkpoint

        return new_checkpoint(log)

    def replace_entry_count(self, checkpoint: bytes, entry_count: int) -> bytes | None:
        """Return a checkpoint with the given number of queue entries; None if it cannot be read."""
        from commitlake.connectors.formats.jmq.checkpoint_and_config import replace_entry_count

        return replace_entry_count(checkpoint, entry_count)

    def checkpoint_claims(self, checkpoint: bytes) -> tuple[CheckpointClaim, ...]:
        """Return the offsets and times up to which a checkpoint confirms that the log is on disk."""
        from commitlake.connectors.formats.jmq.checkpoint_and_config import checkpoint_claims

        return checkpoint_claims(checkpoint)


class JmqFormat(Format):
    """JMQ's storage format: the functions that read and write its journal, queues and small files."""

    name = "jmq"
    title = "JMQ"
    folder = "journal"
    id_pattern = "@"
    brokers = BrokerRules(
        steps_over_damage=True,
        retention_note=(
            "RocketMQ's rules, by which broker_lite deletes files of a journal; JMQ's own are not published"
        ),
    )
    folders = _JmqStoreFolders()
    queues = _JmqQueues()
    indexes = _JmqIndexes()
    small_files = _JmqSmallFiles()

    @cached_property
    def record_rules(self) -> RecordRules:
        """Functions that examine, parse and convert single records of a journal."""
        from commitlake.connectors.formats.jmq.record_rules import RULES

        return RULES

    @cached_property
    def kernel(self) -> FormatKernel:
        """Compiled loops for code that reads many records of a journal."""
        from commitlake.connectors.formats.jmq.compiled_loops import KERNEL

        return KERNEL

    @property
    def read_consume_log(self) -> Callable[[str, str, int | None], Iterator[ConsumeLogPart]]:
        """Function that yields the content of a store's consume log, which records deliveries."""
        from commitlake.connectors.formats.jmq.consume_log_rows import read_consume_files

        return read_consume_files

    @property
    def read_retry_store(self) -> Callable[[str, str], StoredRetries]:
        """Function that returns the failed messages in a store's retry store."""
        from commitlake.connectors.formats.jmq.retry_files import read_retry_store

        return read_retry_store

    def make_sample_files(self, segment_size: int) -> Mapping[str, bytes]:
        """Return a small segment and a small consume log, by path, which are read to compile the loops."""
        from commitlake.connectors.formats.jmq.compiled_loops import make_sample_consume_file, make_sample_segment

        return {f"{self.folder}/{segment_name(0)}": make_sample_segment(segment_size), **make_sample_consume_file()}


FORMAT = JmqFormat()
