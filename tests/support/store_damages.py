"""Ways to damage a store of either format: its log, and a queue."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commitlake.schemas.layouts.base import Layout
from commitlake.schemas.layouts.jmq import journal
from commitlake.schemas.layouts.jmq import queue_file as jmq_queue
from commitlake.schemas.layouts.rocketmq import commitlog, consumequeue
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support import indexed_stores, jmq_stores
from tests.support.journal_stores import journal_records
from tests.support.message_stores import log_records

QUEUE = ("topic-1", 1)
"""The queue that is damaged."""


def patch(path: Path, position: int, data: bytes) -> None:
    """Overwrite some bytes of a file."""
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def cut_file(path: Path, size: int) -> None:
    """Truncate a file."""
    path.write_bytes(path.read_bytes()[:size])


@dataclass(frozen=True)
class Damages:
    """Ways to damage stores of one format; `root` is a store's folder.

    Attributes:
        name: the format's name.
        log: the folder of the log.
        queues: the folder of the queues.
        segment_bytes: size of the log's files.
        queue_file_entries: number of entries of a queue's file.
        head: layout of a record's head.
        offset_name: name of the field, and of the attribute of a message, with its offset in the log.
        entry_layout: layout of a queue's entry.
        parse_entry: reads an entry.
        serialize_entry: writes an entry with its checksum.
        read_log: reads the messages of a store's log.
    """

    name: str
    log: str
    queues: str
    segment_bytes: int
    queue_file_entries: int
    head: Layout
    offset_name: str
    entry_layout: Layout
    parse_entry: Callable[..., Any]
    serialize_entry: Callable[[Any], bytes]
    read_log: Callable[[Path], Iterator[Any]]

    def messages(self, root: Path) -> list[Any]:
        """Return every record of the log."""
        return list(self.read_log(root))

    def record(self, root: Path, number: int = 100) -> Any:
        """Return a record that is followed by others in its segment and in its queue."""
        return self.messages(root)[number]

    def of_queue(self, root: Path) -> list[Any]:
        """Return the records of the queue to damage."""
        return [each for each in self.messages(root) if (each.topic, each.queue_id) == QUEUE]

    def offset_of(self, message: Any) -> int:
        """Return a message's offset in the log."""
        return int(getattr(message, self.offset_name))

    def segment(self, root: Path, offset: int) -> tuple[Path, int]:
        """Return the segment that contains an offset, and the position in it."""
        base = offset - offset % self.segment_bytes
        return root / self.log / segment_name(base), offset - base

    def patch_log(self, root: Path, offset: int, data: bytes) -> None:
        """Overwrite some bytes of the log."""
        path, position = self.segment(root, offset)
        patch(path, position, data)

    def patch_field(self, root: Path, message: Any, name: str, value: int) -> None:
        """Overwrite a field of a record's head."""
        (declared,) = (each for each in self.head.fields if each.name == name)
        position = self.offset_of(message) + self.head.offset_of(name)
        self.patch_log(root, position, struct.pack(">" + declared.code, value))

    def patch_offset(self, root: Path, message: Any, value: int) -> None:
        """Overwrite the offset stored in a record."""
        self.patch_field(root, message, self.offset_name, value)

    def patch_topic(self, root: Path, message: Any, data: bytes) -> None:
        """Overwrite some letters in the middle of a record's topic."""
        path, position = self.segment(root, self.offset_of(message))
        at = path.read_bytes().index(message.topic.encode(), position)
        patch(path, at + 2, data)

    def clear_record(self, root: Path, message: Any) -> None:
        """Overwrite a record with zeros."""
        self.patch_log(root, self.offset_of(message), bytes(message.size))

    def filler(self, root: Path) -> int:
        """Return the offset of the filler that ends the first segment."""
        last = [each for each in self.messages(root) if self.offset_of(each) < self.segment_bytes][-1]
        return self.offset_of(last) + int(last.size)

    def reuse_segment(self, root: Path) -> None:
        """Write the bytes of one segment into the file of another."""
        source, _ = self.segment(root, self.segment_bytes)
        target, _ = self.segment(root, 2 * self.segment_bytes)
        target.write_bytes(source.read_bytes())

    def cut_segment(self, root: Path) -> None:
        """Cut the third segment in the middle of a record of its second half."""
        path, position = self.segment(root, 2 * self.segment_bytes + self.segment_bytes // 2)
        start = int(path.name)
        begin = next(self.offset_of(each) for each in self.messages(root) if self.offset_of(each) > start + position)
        cut_file(path, begin - start + 20)

    @property
    def queue_file_bytes(self) -> int:
        """Size of a queue's file."""
        return self.queue_file_entries * self.entry_layout.size

    def queue_folder(self, root: Path) -> Path:
        """Return the folder of the queue to damage."""
        return root / self.queues / QUEUE[0] / str(QUEUE[1])

    def queue_file(self, root: Path, number: int, queue: tuple[str, int] = QUEUE) -> tuple[Path, int]:
        """Return the file that contains an entry, and the position in it."""
        position = number * self.entry_layout.size
        start = position - position % self.queue_file_bytes
        return root / self.queues / queue[0] / str(queue[1]) / segment_name(start), position - start

    def entry(self, root: Path, number: int) -> Any:
        """Return an entry of the queue to damage."""
        path, position = self.queue_file(root, number)
        found = self.parse_entry(path.read_bytes(), position)
        assert found is not None
        return found

    def put_entry(self, root: Path, number: int, value: Any) -> None:
        """Overwrite an entry of that queue."""
        path, position = self.queue_file(root, number)
        patch(path, position, self.serialize_entry(value))

    def change_entry(self, root: Path, number: int, **changes: int) -> None:
        """Change some fields of an entry of that queue."""
        self.put_entry(root, number, self.entry(root, number)._replace(**changes))

    def clear_entry(self, root: Path, number: int) -> None:
        """Overwrite an entry of that queue with zeros."""
        path, position = self.queue_file(root, number)
        patch(path, position, bytes(self.entry_layout.size))

    def queue_end(self, root: Path) -> int:
        """Return the offset after that queue's last message."""
        return 1 + max(int(each.queue_offset) for each in self.of_queue(root))

    def swap_entries(self, root: Path) -> None:
        """Exchange two entries."""
        first, second = self.entry(root, 3), self.entry(root, 4)
        self.put_entry(root, 3, second)
        self.put_entry(root, 4, first)

    def repeat_record(self, root: Path) -> None:
        """Give a record the queue offset of the previous one."""
        last = self.of_queue(root)[-1]
        self.patch_field(root, last, "queue_offset", last.queue_offset - 1)
        self.clear_entry(root, last.queue_offset)


ROCKETMQ = Damages(
    name="rocketmq",
    log="commitlog",
    queues="consumequeue",
    segment_bytes=indexed_stores.SEGMENT_BYTES,
    queue_file_entries=indexed_stores.QUEUE_FILE_ENTRIES,
    head=commitlog.HEAD,
    offset_name="physical_offset",
    entry_layout=consumequeue.ENTRY,
    parse_entry=consumequeue.parse_entry,
    serialize_entry=consumequeue.serialize_entry,
    read_log=log_records,
)
JMQ = Damages(
    name="jmq",
    log="journal",
    queues="queue",
    segment_bytes=jmq_stores.FILE_BYTES,
    queue_file_entries=jmq_stores.QUEUE_FILE_ENTRIES,
    head=journal.HEAD,
    offset_name="journal_offset",
    entry_layout=jmq_queue.ENTRY,
    parse_entry=jmq_queue.parse_entry,
    serialize_entry=jmq_queue.serialize_entry,
    read_log=journal_records,
)
DAMAGES = {each.name: each for each in (ROCKETMQ, JMQ)}
"""By the format's name."""
