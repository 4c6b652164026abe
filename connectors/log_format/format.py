"""Interface of a log format: everything that differs between the formats of brokers' logs, as named parts.

Each package in `connectors.formats` exports one `FORMAT`, and its `registry` lists them. Code outside such a package
never checks which format it has; it uses the object. This module, and a format's own `format` module, import the
standard library only. Modules that take long to import (numpy, the compiled loops) are loaded on first use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from commitlake.connectors.log_format.records import RecordRules
from commitlake.schemas.layouts.boltmq.dialect import ROCKETMQ, Dialect

if TYPE_CHECKING:
    from commitlake.connectors.log_format.checkpoint_and_config import (
        CheckedLog,
        CheckpointClaim,
        Problems,
        RebuiltLog,
        SmallFiles,
    )
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
    from commitlake.connectors.log_format.recorded_deliveries import ConsumeLogPart, StoredRetries

_ANY = "any"


@dataclass(frozen=True)
class BrokerRules:
    """Properties of a format's brokers, such as how they deliver delayed messages and treat damage.

    Attributes:
        has_delay_levels: whether a broker delivers delayed messages by levels, from queues of a schedule topic.
        has_transaction_flags: whether a record's sys_flag marks inner batches and the state of a transaction.
        has_archived_settings: whether the archive records the broker's settings that a store's files show.
        accepts_zero_texts: whether a starting broker takes zeros in a record's texts for content.
        steps_over_damage: whether a broker continues to read after a bad range; else its log ends there.
        repairs_after_abort: whether a broker that finds the file `abort` rebuilds parts of its indexes.
        retention_note: a note on the deletion rules that `guard` uses for the broker; empty for none.
    """

    has_delay_levels: bool = False
    has_transaction_flags: bool = False
    has_archived_settings: bool = False
    accepts_zero_texts: bool = False
    steps_over_damage: bool = False
    repairs_after_abort: bool = False
    retention_note: str = ""


class StoreFolders:
    """Folders of a format's stores: the stores' own folders, rebuilt folders, and folders of other logs.

    Attributes:
        own: folders that never hold another store.
        rebuilt: files and folders that a rebuild creates, as paths relative to the store's folder.
        appended_logs: prefixes of the names of folders in a store in which a log may go on.
    """

    own: frozenset[str]
    rebuilt: tuple[str, ...]
    appended_logs: tuple[str, ...] = ()

    def further_log_folders(self, root: Path, log_folder: Path, settings: Mapping[str, str]) -> Iterable[Path]:  # noqa: ARG002
        """Return the further folders of a store's log that the broker's settings name; they need not exist.

        Args:
            root: the store's folder.
            log_folder: the log's folder in it.
            settings: the broker's settings; empty if they are unknown.
        """
        return ()

    def find_last_committed(self, root: Path, log_folders: Collection[Path]) -> tuple[int, int] | None:  # noqa: ARG002
        """Return physical offset and end of the last committed record of a log with an appended folder.

        Args:
            root: the store's folder.
            log_folders: the folders of the log's segments.

        Returns:
            None if it is not known; (0, 0) if nothing is committed.
        """
        return None

    def appended_log_folders(self, root: Path, log_folder: Path, settings: Mapping[str, str]) -> Iterable[Path]:  # noqa: ARG002
        """Return the folders in which the log may go on after its own folder; they need not exist.

        Raises:
            UnsafeFileError: for a link in place of such a folder in the store.
        """
        return ()


class FormatDialects:
    """Functions that determine the dialect of segments, for formats with several dialects.

    Attributes:
        exist: whether there are several.
    """

    exist = False

    def detect_dialects(self, segments: Sequence[Segment]) -> frozenset[Dialect]:  # noqa: ARG002
        """Return the set of dialects of segments; empty if the format has no dialects."""
        return frozenset()

    def dialect_of(self, segments: Sequence[Segment]) -> Dialect:  # noqa: ARG002
        """Return the dialect of a store with these segments, or RocketMQ's if its segments do not determine one."""
        return ROCKETMQ


class FormatQueues(ABC):
    """Queues of a format: their folders, layouts, readers and writers.

    Attributes:
        folders: the folders of a store that hold queues, the usual kind first.
        entry_sizes: size of an entry in each folder of queues, bytes. An entry begins with the physical offset of a
            record, in 8 bytes, and its size, in 4 bytes; the size of an entry that is not written is 0.
    """

    folders: tuple[str, ...]
    entry_sizes: Mapping[str, int] = MappingProxyType({})

    @property
    @abstractmethod
    def layout(self) -> QueueLayout:
        """Binary layout of the entries of the usual queues, which most topics have."""

    @property
    def batch_layout(self) -> QueueLayout | None:
        """Binary layout of the entries of batch topics' queues; None if the format has no separate queues for them."""
        return None

    @property
    @abstractmethod
    def lookup_queue_format(self) -> QueueFormat:
        """Description of the usual queues by which records are looked up without a scan of the log."""

    @abstractmethod
    def walk_queue_entries(
        self, files: StoreFiles, topic: str | None, queue_id: int | None, report_damage: Callable[[str], None]
    ) -> Iterator[dict[str, object]]:
        """Yield the entries of a store's queues as rows, in order of topic, queue and offset.

        Args:
            topic: return only this topic.
            queue_id: return only queues with this id.
            report_damage: receives a sentence about each invalid entry, if the format's entries can be checked.

        Raises:
            StoreError: if the store has no queues that can be read, or is a copy that was changed.
        """

    @abstractmethod
    def make_queue_writer(self, files: NewQueueFiles, queue: NewQueue) -> QueueWriter:
        """Return a writer that rebuilds a queue's files."""

    def has_queues_in_rocksdb(self, root: Path) -> bool:  # noqa: ARG002
        """Return whether the queues of a store are in RocksDB instead of files."""
        return False

    def topic_kinds(self, root: Path) -> TopicKinds:  # noqa: ARG002
        """Return which type of queues each topic of a store has; empty if the format has only one type.

        Raises:
            UnsafeFileError: for a link among the files and folders that are read for this.
        """
        from commitlake.connectors.log_format.queues import TopicKinds  # noqa: PLC0415 (it needs numpy)

        return TopicKinds()


class FormatIndexes(ABC):
    """Indexes of a format, and the data from which they are built.

    Attributes:
        has_files: whether IndexFiles may lie beside the log.
    """

    has_files = False

    @abstractmethod
    def make_index_data_reader(
        self, start_offset: int, delay_levels_ms: Sequence[int], chunk_rows: int
    ) -> IndexDataReader:
        """Return a reader of the data in a range of the log from which indexes are built.

        Args:
            start_offset: physical offset of the range's first byte.
            delay_levels_ms: the broker's messageDelayLevel, if the format has delay levels.
            chunk_rows: the largest number of records in a chunk.
        """

    @abstractmethod
    def no_key_index_reason(self, segments: Sequence[Segment]) -> str | None:
        """Return why the indexes of a store with these segments cannot be searched for keys, or None if they can."""

    def open_key_index(
        self, folder: Path, topics: Collection[str], keys: Collection[str], read_message_at: Callable[[int], Any]
    ) -> KeyIndex:
        """Open a store's indexes for a search for keys, unless `no_key_index_reason` returns a reason.

        Args:
            folder: the store's folder.
            topics: the topics that are searched.
            keys: the keys of records that are searched for.
            read_message_at: a function that reads the record at a physical offset.

        Raises:
            BadIndexError: if the indexes are missing, cannot be read, or have no answer.
        """
        raise NotImplementedError("this log format has no index of keys: find records by a scan of the log")

    def newest_indexed_record(self, root: Path) -> tuple[str, int] | None:  # noqa: ARG002
        """Return a store's newest index file, and the physical offset of the last record in it; None without one.

        Raises:
            OSError: if it cannot be read.
        """
        return None


class FormatSmallFiles(ABC):
    """Readers and writers of a store's small files: checkpoint, offsets of groups, and topics.

    Attributes:
        counts_entries: whether a checkpoint states the total number of entries in all queues.
        has_topic_configs: whether a store has a `config/topics.json`, which a broker must find.
    """

    counts_entries = False
    has_topic_configs = False

    @abstractmethod
    def read_small_files(self, root: Path, problems: Problems, *, is_live: bool) -> SmallFiles:
        """Read a store's checkpoint and offsets; report unreadable files as problems, and treat them as missing.

        Args:
            root: the store's folder.
            is_live: whether a broker has the store open, which may not have written all of the files yet.
        """

    def check_checkpoint(self, log: CheckedLog, small_files: SmallFiles, problems: Problems) -> None:  # noqa: B027
        """Compare those values of a checkpoint with records and queues that `checkpoint_claims` does not return."""

    @abstractmethod
    def new_checkpoint(self, root: Path, log: RebuiltLog) -> bytes:
        """Return a checkpoint that confirms all records as flushed, as after a clean shutdown.

        Args:
            root: the store's folder; data that the log lacks may come from its old checkpoint.
        """

    def replace_entry_count(self, checkpoint: bytes, entry_count: int) -> bytes | None:  # noqa: ARG002
        """Return a checkpoint with the given number of queue entries; None if it stores no number or cannot be read."""
        return None

    def checkpoint_claims(self, checkpoint: bytes) -> tuple[CheckpointClaim, ...]:  # noqa: ARG002
        """Return offsets and times up to which a checkpoint confirms that the log is on disk; empty if unreadable."""
        return ()

    def known_topics(self, root: Path) -> frozenset[str] | None:  # noqa: ARG002
        """Return the topics in a store's configuration; None if it does not list them."""
        return None

    def rocksdb_offsets_folder(self, root: Path) -> Path | None:  # noqa: ARG002
        """Return the folder of a store in which RocksDB has the offsets of groups; None if they are in a file."""
        return None


class Format(ABC):
    """Storage format of a broker: the functions that read and write its logs, queues and small files.

    Attributes:
        name: the format's name: `rocketmq`, `jmq`.
        title: the broker's name as people write it.
        folder: the folder of a store that holds its segments; a store is recognised by it. Checkpoints, snapshots and
            control files call the format by this.
        aliases: other names that options accept for it.
        id_pattern: matches the `msg_id` of each row of this format, and of no other.
        can_be_restored: whether a log can be created from the rows of a lake.
        brokers: rules of its brokers.
        folders: folders of a store.
        dialects: dialects of the format.
        queues: queues of a store.
        indexes: indexes of a store.
        small_files: checkpoint, offsets of groups, and topics of a store.
    """

    name: str
    title: str
    folder: str
    aliases: tuple[str, ...] = ()
    id_pattern: str
    can_be_restored: bool = False
    brokers: BrokerRules
    folders: StoreFolders
    dialects = FormatDialects()
    queues: FormatQueues
    indexes: FormatIndexes
    small_files: FormatSmallFiles

    def __reduce__(self) -> str:
        """Pickle only a reference to the module's `FORMAT`, because the other process can import it."""
        return "FORMAT"

    def __repr__(self) -> str:
        return f"<format {self.name}>"

    @property
    @abstractmethod
    def record_rules(self) -> RecordRules:
        """Functions that examine, parse and convert single records of the format."""

    @property
    @abstractmethod
    def kernel(self) -> FormatKernel:
        """Compiled loops of the format, for code that reads many records."""

    @property
    def read_consume_log(self) -> Callable[[str, str, int | None], Iterator[ConsumeLogPart]] | None:
        """Function that yields the content of a store's consume log; None if the format has none.

        Its arguments are the store's folder, as a path or URI, the store's name, and the offset in that log at which to
        begin; None for its beginning.
        """
        return None

    @property
    def read_retry_store(self) -> Callable[[str, str], StoredRetries] | None:
        """Function that returns the failed messages in a store's retry store; None if the format has none.

        Its arguments are the store's folder, as a path or URI, and the store's name.
        """
        return None

    @abstractmethod
    def make_sample_files(self, segment_size: int) -> Mapping[str, bytes]:
        """Return the files, by path, of a small sample store that is read to compile the loops; the segment is first.

        Set-up reads them to compile the format's loops. The segment has three messages; one is damaged, and one has a
        property that is not UTF-8.
        """


@dataclass(frozen=True, slots=True)
class Formats:
    """Selection of the formats to read among all known formats; iteration yields the selected ones.

    Attributes:
        known: all formats. A store of another format than the wanted ones is recognised, and named in errors.
        wanted: formats that are read.
    """

    known: tuple[Format, ...] = ()
    wanted: tuple[Format, ...] = ()

    def __iter__(self) -> Iterator[Format]:
        return iter(self.wanted)

    @property
    def option_values(self) -> tuple[str, ...]:
        """Values that the option for the format accepts, without aliases."""
        return (*(log_format.folder for log_format in self.known), _ANY)

    def select_only(self, log_format: Format) -> Formats:
        """Return a copy in which only this format is selected."""
        return Formats(self.known, (log_format,))

    def find_format(self, text: str) -> Format | None:
        """Return the format with this folder name, format name or alias; None if there is none."""
        names = ((each, (each.folder, each.name, *each.aliases)) for each in self.known)
        return next((each for each, own in names if text in own), None)

    def select_by_name(self, option_value: str) -> Formats:
        """Parse the value of an option: the name of one format, or a value that allows any format.

        Raises:
            ValueError: if the text is neither.
        """
        if option_value.lower() == _ANY:
            return Formats(self.known, self.known)
        found = self.find_format(option_value.lower())
        if found is None:
            raise ValueError(f"expected one of {', '.join(self.option_values)}, found {option_value!r}")
        return self.select_only(found)

    def __str__(self) -> str:
        return self.wanted[0].folder if len(self.wanted) == 1 else _ANY
