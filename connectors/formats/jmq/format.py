"""JMQ's journal as a `Format`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from commitlake.connectors.log_format.format import Format, RecordRules

if TYPE_CHECKING:
    from commitlake.connectors.log_format.deliveries import ConsumeLogPart, StoredRetries
    from commitlake.connectors.log_format.files import StoreFiles
    from commitlake.connectors.log_format.indexes import FactsReader
    from commitlake.connectors.log_format.kernel import FormatKernel
    from commitlake.connectors.log_format.queues import NewQueue, NewQueueFiles, QueueLayout, QueueWriter
    from commitlake.connectors.log_format.small_files import CheckedLog, Claim, Problems, RebuiltLog, SmallFiles


class JmqFormat(Format):
    """Format of JMQ; see `Format`."""

    name = "jmq"
    title = "JMQ"
    folder = "journal"
    id_pattern = "@"
    store_folders = frozenset({"journal", "queue", "consume", "retry"})
    queue_entry_sizes: Mapping[str, int] = MappingProxyType({"queue": 22})
    queue_folders = ("queue",)
    rebuilt_files = (*queue_folders, "checkpoint")
    has_consume_log = True
    has_retry_store = True
    steps_over_damage = True
    counts_entries = True
    retention_note = "RocketMQ's rules, by which broker_lite deletes files of a journal; JMQ's own are not published"

    @cached_property
    def rules(self) -> RecordRules:
        """Rules for one record; see `Format`."""
        from commitlake.connectors.formats.jmq.rules import RULES

        return RULES

    @cached_property
    def kernel(self) -> FormatKernel:
        """Compiled loops; see `Format`."""
        from commitlake.connectors.formats.jmq.reading import KERNEL

        return KERNEL

    def sample_segment(self, size: int) -> bytes:
        """Return a small segment; see `Format`."""
        from commitlake.connectors.formats.jmq.samples import sample_segment

        return sample_segment(size)

    def sample_other_files(self) -> Mapping[str, bytes]:
        """Return a file of the consume log; see `Format`."""
        from commitlake.connectors.formats.jmq.samples import sample_consume_file

        return sample_consume_file()

    @cached_property
    def queues(self) -> QueueLayout:
        """Queues of the format; see `Format`."""
        from commitlake.connectors.formats.jmq.queue_facts import QUEUES

        return QUEUES

    def facts_reader(self, start: int, delay_levels_ms: Sequence[int], chunk_rows: int) -> FactsReader:  # noqa: ARG002
        """Return a reader of data for indexes; see `Format`."""
        from commitlake.connectors.formats.jmq.facts import JournalReader

        return JournalReader(start, chunk_rows)

    def walk_queues(
        self, files: StoreFiles, topic: str | None, queue_id: int | None, damage: Callable[[str], None]
    ) -> Iterator[dict[str, object]]:
        """Yield the entries of a store's queues; see `Format`."""
        from commitlake.connectors.formats.jmq.queue_files import walk_queue_files

        for found in walk_queue_files(files, damage, topic, queue_id):
            yield {
                "topic": found.topic,
                "queue_id": found.queue_id,
                "queue_offset": found.queue_offset,
                "physical_offset": found.entry.journal_offset,
                "size": found.entry.size,
            }

    def queue_writer(self, files: NewQueueFiles, queue: NewQueue) -> QueueWriter:
        """Return a writer that rebuilds a queue's files; see `Format`."""
        from commitlake.connectors.formats.jmq.queue_writer import JournalQueueWriter

        return JournalQueueWriter(files, queue.log_start)

    def read_consume_log(self, root: str, broker: str, start: int | None) -> Iterator[ConsumeLogPart]:
        """Yield a store's consume records; see `Format`."""
        from commitlake.connectors.formats.jmq.consume_files import read_consume_files

        return read_consume_files(root, broker, start)

    def read_retry_store(self, root: str, broker: str) -> StoredRetries:
        """Return a store's failed messages; see `Format`."""
        from commitlake.connectors.formats.jmq.retry_files import read_retry_store

        return read_retry_store(root, broker)

    def checkpoint_claims(self, checkpoint: bytes) -> tuple[Claim, ...]:
        """Return the claims of a checkpoint's bytes; see `Format`."""
        from commitlake.connectors.formats.jmq.small_files import checkpoint_claims

        return checkpoint_claims(checkpoint)

    def read_small_files(self, root: Path, problems: Problems, *, is_live: bool) -> SmallFiles:
        """Read a store's checkpoint and offsets; see `Format`."""
        from commitlake.connectors.formats.jmq.small_files import read_small_files

        return read_small_files(root, problems, is_live=is_live)

    def check_checkpoint(self, log: CheckedLog, files: SmallFiles, problems: Problems) -> None:
        """Compare a checkpoint with records and queues; see `Format`."""
        from commitlake.connectors.formats.jmq.small_files import check_checkpoint

        check_checkpoint(log, files, problems)

    def new_checkpoint(self, root: Path, log: RebuiltLog) -> bytes:  # noqa: ARG002
        """Return a checkpoint that confirms everything as flushed; see `Format`."""
        from commitlake.connectors.formats.jmq.small_files import new_checkpoint

        return new_checkpoint(log)

    def with_entry_count(self, checkpoint: bytes, entries: int) -> bytes | None:
        """Return a checkpoint with another count of entries; see `Format`."""
        from commitlake.connectors.formats.jmq.small_files import with_entry_count

        return with_entry_count(checkpoint, entries)


FORMAT = JmqFormat()
