"""RocketMQ's CommitLog, and BoltMQ's dialect of it, as a `Format`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from commitlake.connectors.log_format.format import Format, RecordRules
from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ, Dialect

if TYPE_CHECKING:
    from commitlake.connectors.log_format.files import Segment, StoreFiles
    from commitlake.connectors.log_format.indexes import FactsReader, KeyIndex
    from commitlake.connectors.log_format.kernel import FormatKernel
    from commitlake.connectors.log_format.queues import NewQueue, NewQueueFiles, QueueLayout, QueueWriter, TopicKinds
    from commitlake.connectors.log_format.small_files import Claim, Problems, RebuiltLog, SmallFiles

_ROCKSDB_FILE, _ROCKSDB_OFFSETS = "CURRENT", "config/consumerOffsets"
_ENTRY_SIZES = (20, 46)


class RocketmqFormat(Format):
    """Format of RocketMQ and BoltMQ; see `Format`."""

    name = "rocketmq"
    title = "RocketMQ"
    folder = "commitlog"
    aliases = (BOLTMQ.name.lower(),)
    id_pattern = "^[0-9A-Fa-f]+$"
    store_folders = frozenset({
        "commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "index", "config", "timerlog",
        "compaction",
    })  # fmt: skip
    queue_folders = ("consumequeue", "batchconsumequeue")
    rebuilt_files = (*queue_folders, "index", "checkpoint", "config/topics.json")
    has_dialects = True
    has_index_files = True
    has_delay_levels = True
    has_topic_configs = True
    has_transaction_flags = True
    has_archived_settings = True
    accepts_zero_texts = True
    repairs_after_abort = True
    queue_entry_sizes: Mapping[str, int] = MappingProxyType(dict(zip(queue_folders, _ENTRY_SIZES, strict=True)))
    unsupported_logs: Mapping[str, str] = MappingProxyType({"dledger-": "DLedger"})
    can_be_restored = True

    @cached_property
    def rules(self) -> RecordRules:
        """Rules for one record; see `Format`."""
        from commitlake.connectors.formats.rocketmq.rules import RULES

        return RULES

    @cached_property
    def kernel(self) -> FormatKernel:
        """Compiled loops; see `Format`."""
        from commitlake.connectors.formats.rocketmq.reading import KERNEL

        return KERNEL

    def sample_segment(self, size: int) -> bytes:
        """Return a small segment; see `Format`."""
        from commitlake.connectors.formats.rocketmq.samples import sample_segment

        return sample_segment(size)

    def dialects_of(self, segments: Sequence[Segment]) -> frozenset[Dialect]:
        """Return the dialects of a store's segments; see `Format`."""
        from commitlake.connectors.formats.rocketmq.dialects import dialects_of

        return dialects_of(segments, self)

    def dialect_of(self, segments: Sequence[Segment]) -> Dialect:
        """Return the dialect of a store; see `Format`."""
        from commitlake.connectors.formats.rocketmq.dialects import dialect_of

        return dialect_of(segments, self)

    @cached_property
    def queues(self) -> QueueLayout:
        """Queues of the format; see `Format`."""
        from commitlake.connectors.formats.rocketmq.consume_queues import QUEUES

        return QUEUES

    @cached_property
    def batch_queues(self) -> QueueLayout:
        """Queues of topics with batches; see `Format`."""
        from commitlake.connectors.formats.rocketmq.batch_queues import QUEUES

        return QUEUES

    def facts_reader(self, start: int, delay_levels_ms: Sequence[int], chunk_rows: int) -> FactsReader:
        """Return a reader of data for indexes; see `Format`."""
        from commitlake.connectors.formats.rocketmq.facts import CommitLogReader

        return CommitLogReader(start, delay_levels_ms, chunk_rows)

    def why_no_key_index(self, segments: Sequence[Segment]) -> str | None:
        """Return why the indexes cannot be searched for keys; see `Format`."""
        from commitlake.connectors.formats.rocketmq.dialects import why_no_key_index

        return why_no_key_index(segments, self)

    def open_key_index(
        self, folder: Path, topics: Collection[str], keys: Collection[str], message_at: Callable[[int], Any]
    ) -> KeyIndex:
        """Open a store's indexes for a search for keys; see `Format`."""
        from commitlake.connectors.formats.rocketmq.key_index import IndexFiles

        return IndexFiles(folder, topics, keys, message_at)

    def walk_queues(
        self,
        files: StoreFiles,
        topic: str | None,
        queue_id: int | None,
        damage: Callable[[str], None],  # noqa: ARG002 (an entry has nothing to prove itself by)
    ) -> Iterator[dict[str, object]]:
        """Yield the entries of a store's queues; see `Format`."""
        from commitlake.connectors.formats.rocketmq.indexes import walk_consume_queues
        from commitlake.connectors.reading.unread import refuse_rocksdb_queues

        if files.files_in(self.queue_folders[0], _ROCKSDB_FILE.__eq__):
            refuse_rocksdb_queues(files.place_of(""))
        for found in walk_consume_queues(files, topic, queue_id):
            yield {
                "topic": found.topic,
                "queue_id": found.queue_id,
                "queue_offset": found.queue_offset,
                "physical_offset": found.entry.physical_offset,
                "size": found.entry.size,
                "tags_code": found.entry.tags_code,
            }

    def queue_writer(self, files: NewQueueFiles, queue: NewQueue) -> QueueWriter:
        """Return a writer that rebuilds a queue's files; see `Format`."""
        from commitlake.connectors.formats.rocketmq.queue_writer import RocketmqQueueWriter

        return RocketmqQueueWriter(files, queue)

    def has_rocksdb_queues(self, root: Path) -> bool:
        """Return whether RocksDB's file CURRENT is among the queues."""
        return os.path.lexists(root / self.queue_folders[0] / _ROCKSDB_FILE)

    def rocksdb_offsets(self, root: Path) -> Path | None:
        """Return the folder of RocksDB's offsets; see `Format`."""
        folder = root / _ROCKSDB_OFFSETS
        return folder if os.path.lexists(folder / _ROCKSDB_FILE) else None

    def topic_kinds(self, root: Path) -> TopicKinds:
        """Return the queue types of a store's topics; see `Format`."""
        from commitlake.connectors.formats.rocketmq.topic_kinds import read_topic_kinds

        return read_topic_kinds(root)

    def other_logs(self, root: Path, log: Path, settings: Mapping[str, str]) -> Iterator[Path]:
        """Return the folders of several paths, and those of DLedger; see `Format`."""
        from commitlake.connectors.formats.rocketmq.other_logs import other_logs

        return other_logs(root, log, settings)

    def newest_indexed(self, root: Path) -> tuple[str, int] | None:
        """Return the newest IndexFile, and the offset of the last record in it; see `Format`."""
        from commitlake.connectors.formats.rocketmq.other_logs import newest_indexed

        return newest_indexed(root)

    def checkpoint_claims(self, checkpoint: bytes) -> tuple[Claim, ...]:
        """Return the claims of a checkpoint's bytes; see `Format`."""
        from commitlake.connectors.formats.rocketmq.small_files import checkpoint_claims

        return checkpoint_claims(checkpoint)

    def known_topics(self, root: Path) -> frozenset[str] | None:
        """Return the topics in a store's configuration; see `Format`."""
        from commitlake.connectors.formats.rocketmq.topic_configs import known_topics

        return known_topics(root)

    def read_small_files(self, root: Path, problems: Problems, *, is_live: bool) -> SmallFiles:
        """Read a store's checkpoint and offsets; see `Format`."""
        from commitlake.connectors.formats.rocketmq.small_files import read_small_files

        return read_small_files(root, problems, is_live=is_live)

    def new_checkpoint(self, root: Path, log: RebuiltLog) -> bytes:
        """Return a checkpoint that confirms everything as flushed; see `Format`."""
        from commitlake.connectors.formats.rocketmq.small_files import new_checkpoint

        return new_checkpoint(root, log)


FORMAT = RocketmqFormat()
