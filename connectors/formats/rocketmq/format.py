"""RocketMQ's CommitLog, and BoltMQ's dialect of it, as a `Format`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from commitlake.connectors.log_format.format import (
    BrokerRules,
    Format,
    FormatDialects,
    FormatIndexes,
    FormatQueues,
    FormatSmallFiles,
    StoreFolders,
)
from commitlake.connectors.log_format.records import RecordRules
from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ, Dialect
from commitlake.schemas.layouts.segment_names import segment_name

if TYPE_CHECKING:
    from commitlake.connectors.log_format.checkpoint_and_config import CheckpointClaim, Problems, RebuiltLog, SmallFiles
    from commitlake.connectors.log_format.files import Segment, StoreFiles
    from commitlake.connectors.log_format.indexes import IndexDataReader, KeyIndex
    from commitlake.connectors.log_format.kernel import FormatKernel
    from commitlake.connectors.log_format.queues import (
        NewQueue,
        NewQueueFiles,
        QueueFormat,
        QueueLayout,
        QueueWriter,
        TopicKinds,
    )

_QUEUES = ("consumequeue", "batchconsumequeue")
_ENTRY_SIZES = (20, 46)
_ROCKSDB_FILE, _ROCKSDB_OFFSETS = "CURRENT", "config/consumerOffsets"


class _RocketmqStoreFolders(StoreFolders):
    own = frozenset({
        "commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "index", "config", "timerlog",
        "compaction",
    })  # fmt: skip
    rebuilt = (*_QUEUES, "index", "checkpoint", "config/topics.json")
    appended_logs = ("dledger-",)

    def further_log_folders(self, root: Path, log_folder: Path, settings: Mapping[str, str]) -> Iterator[Path]:
        """Yield the further folders of a CommitLog that is in several (RIP-7)."""
        from commitlake.connectors.formats.rocketmq.log_folders import further_log_folders

        return further_log_folders(root, log_folder, settings)

    def appended_log_folders(self, root: Path, log_folder: Path, settings: Mapping[str, str]) -> Iterator[Path]:
        """Yield the folders of DLedger logs."""
        from commitlake.connectors.formats.rocketmq.log_folders import appended_log_folders

        return appended_log_folders(root, log_folder, settings)

    def find_last_committed(self, root: Path, log_folders: Collection[Path]) -> tuple[int, int] | None:
        """Return physical offset and end of the last record that a DLedger group has committed."""
        from commitlake.connectors.formats.rocketmq.committed_entries import find_last_committed

        return find_last_committed(root, log_folders)


class _RocketmqDialects(FormatDialects):
    exist = True

    def detect_dialects(self, segments: Sequence[Segment]) -> frozenset[Dialect]:
        """Return the dialects (format variants) of segments."""
        from commitlake.connectors.formats.rocketmq.dialects import detect_dialects

        return detect_dialects(segments, FORMAT)

    def dialect_of(self, segments: Sequence[Segment]) -> Dialect:
        """Return the dialect (format variant) of a store; RocketMQ's if its segments do not determine one."""
        from commitlake.connectors.formats.rocketmq.dialects import choose_dialect

        return choose_dialect(segments, FORMAT)


class _RocketmqQueues(FormatQueues):
    folders = _QUEUES
    entry_sizes: Mapping[str, int] = MappingProxyType(dict(zip(_QUEUES, _ENTRY_SIZES, strict=True)))

    @cached_property
    def layout(self) -> QueueLayout:
        """Binary layout of the entries in ConsumeQueue files."""
        from commitlake.connectors.formats.rocketmq.consume_queues import QUEUES

        return QUEUES

    @cached_property
    def batch_layout(self) -> QueueLayout:
        """Binary layout of the entries in BatchConsumeQueue files."""
        from commitlake.connectors.formats.rocketmq.batch_queues import QUEUES

        return QUEUES

    @cached_property
    def lookup_queue_format(self) -> QueueFormat:
        """Description of the ConsumeQueues, by which records are found without a scan of the log."""
        from commitlake.connectors.formats.rocketmq.consume_queues import CONSUME_QUEUES

        return CONSUME_QUEUES

    def walk_queue_entries(
        self,
        files: StoreFiles,
        topic: str | None,
        queue_id: int | None,
        report_damage: Callable[[str], None],  # noqa: ARG002 (an entry has nothing to prove itself by)
    ) -> Iterator[dict[str, object]]:
        """Yield the entries of a store's queues as rows, in order of topic, queue and offset."""
        from commitlake.connectors.formats.rocketmq.indexes import walk_consume_queues
        from commitlake.connectors.reading.unread_warnings import refuse_rocksdb_queues

        if files.files_in(self.folders[0], _ROCKSDB_FILE.__eq__):
            refuse_rocksdb_queues(files.location_of(""))
        for found in walk_consume_queues(files, topic, queue_id):
            yield {
                "topic": found.topic,
                "queue_id": found.queue_id,
                "queue_offset": found.queue_offset,
                "physical_offset": found.entry.physical_offset,
                "size": found.entry.size,
                "tags_code": found.entry.tags_code,
            }

    def make_queue_writer(self, files: NewQueueFiles, queue: NewQueue) -> QueueWriter:
        """Return a writer that rebuilds the files of a queue."""
        from commitlake.connectors.formats.rocketmq.queue_writer import RocketmqQueueWriter

        return RocketmqQueueWriter(files, queue)

    def has_queues_in_rocksdb(self, root: Path) -> bool:
        """Return whether the folder of the queues contains RocksDB's file CURRENT."""
        return os.path.lexists(root / self.folders[0] / _ROCKSDB_FILE)

    def topic_kinds(self, root: Path) -> TopicKinds:
        """Return which topics of a store have ConsumeQueues, and which BatchConsumeQueues."""
        from commitlake.connectors.formats.rocketmq.topic_kinds import read_topic_kinds

        return read_topic_kinds(root)


class _RocketmqIndexes(FormatIndexes):
    has_files = True

    def make_index_data_reader(
        self, start_offset: int, delay_levels_ms: Sequence[int], chunk_rows: int
    ) -> IndexDataReader:
        """Return a reader of the data in a range of a CommitLog from which indexes are built."""
        from commitlake.connectors.formats.rocketmq.index_data import CommitLogReader

        return CommitLogReader(start_offset, delay_levels_ms, chunk_rows)

    def no_key_index_reason(self, segments: Sequence[Segment]) -> str | None:
        """Return why a store's IndexFiles cannot be searched for keys; None if they can."""
        from commitlake.connectors.formats.rocketmq.dialects import key_index_problem

        return key_index_problem(segments, FORMAT)

    def open_key_index(
        self, folder: Path, topics: Collection[str], keys: Collection[str], read_message_at: Callable[[int], Any]
    ) -> KeyIndex:
        """Open a store's IndexFiles for a search for keys."""
        from commitlake.connectors.formats.rocketmq.key_index import IndexFiles

        return IndexFiles(folder, topics, keys, read_message_at)

    def newest_indexed_record(self, root: Path) -> tuple[str, int] | None:
        """Return a store's newest IndexFile, and the physical offset of the last record in it; None without one."""
        from commitlake.connectors.formats.rocketmq.log_folders import read_newest_indexed_record

        return read_newest_indexed_record(root)


class _RocketmqSmallFiles(FormatSmallFiles):
    has_topic_configs = True

    def read_small_files(self, root: Path, problems: Problems, *, is_live: bool) -> SmallFiles:
        """Read a store's checkpoint and offsets; report unreadable files as problems, and treat them as missing."""
        from commitlake.connectors.formats.rocketmq.checkpoint_and_config import read_small_files

        return read_small_files(root, problems, is_live=is_live)

    def new_checkpoint(self, root: Path, log: RebuiltLog) -> bytes:
        """Return a checkpoint that confirms all records as flushed, as after a clean shutdown."""
        from commitlake.connectors.formats.rocketmq.checkpoint_and_config import new_checkpoint

        return new_checkpoint(root, log)

    def checkpoint_claims(self, checkpoint: bytes) -> tuple[CheckpointClaim, ...]:
        """Return the offsets and times up to which a checkpoint confirms that the log is on disk."""
        from commitlake.connectors.formats.rocketmq.checkpoint_and_config import checkpoint_claims

        return checkpoint_claims(checkpoint)

    def known_topics(self, root: Path) -> frozenset[str] | None:
        """Return the topics in a store's topics.json; None if it cannot be read."""
        from commitlake.connectors.formats.rocketmq.topic_configs import known_topics

        return known_topics(root)

    def rocksdb_offsets_folder(self, root: Path) -> Path | None:
        """Return the folder in which RocksDB has the offsets of consumer groups; None if they are in a file."""
        folder = root / _ROCKSDB_OFFSETS
        return folder if os.path.lexists(folder / _ROCKSDB_FILE) else None


class RocketmqFormat(Format):
    """RocketMQ's and BoltMQ's storage format: the functions that read and write CommitLog, queues and small files."""

    name = "rocketmq"
    title = "RocketMQ"
    folder = "commitlog"
    aliases = (BOLTMQ.name.lower(),)
    id_pattern = "^[0-9A-Fa-f]+$"
    can_be_restored = True
    brokers = BrokerRules(
        has_delay_levels=True,
        has_transaction_flags=True,
        has_archived_settings=True,
        accepts_zero_texts=True,
        repairs_after_abort=True,
    )
    folders = _RocketmqStoreFolders()
    dialects = _RocketmqDialects()
    queues = _RocketmqQueues()
    indexes = _RocketmqIndexes()
    small_files = _RocketmqSmallFiles()

    @cached_property
    def record_rules(self) -> RecordRules:
        """Functions that examine, parse and convert single records of a CommitLog."""
        from commitlake.connectors.formats.rocketmq.record_rules import RULES

        return RULES

    @cached_property
    def kernel(self) -> FormatKernel:
        """Compiled loops for code that reads many records of a CommitLog."""
        from commitlake.connectors.formats.rocketmq.compiled_loops import KERNEL

        return KERNEL

    def make_sample_files(self, segment_size: int) -> Mapping[str, bytes]:
        """Return a small segment, by path, which is read to compile the loops."""
        from commitlake.connectors.formats.rocketmq.compiled_loops import make_sample_segment

        return {f"{self.folder}/{segment_name(0)}": make_sample_segment(segment_size)}


FORMAT = RocketmqFormat()
