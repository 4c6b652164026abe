"""Ways to damage a JMQ store, and what they need; every one takes the store's folder."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from commitlake.schemas.layouts.jmq import queue as jmq_queue
from commitlake.schemas.layouts.jmq.checkpoint import (
    JournalCheckpoint,
    parse_journal_checkpoint,
    serialize_journal_checkpoint,
)
from commitlake.schemas.layouts.jmq.journal import BODY_START, HEAD, TOPIC_LENGTH, JournalMessage
from commitlake.schemas.layouts.jmq.queue import ENTRY, serialize_entry
from commitlake.schemas.layouts.segments import segment_name
from tests.support.jmq_stores import FILE_BYTES, QUEUE_FILE_ENTRIES
from tests.support.journal_stores import journal_records
from tests.support.store_damages import patch

QUEUE = ("topic-1", 1)
QUEUE_FILE_BYTES = QUEUE_FILE_ENTRIES * ENTRY.size


def record(root: Path, number: int = 100) -> JournalMessage:
    """A record that others follow in its file and in its queue."""
    return list(journal_records(root))[number]


def of_queue(root: Path, number: int = 5) -> JournalMessage:
    """A record of the queue that is damaged."""
    return [each for each in journal_records(root) if (each.topic, each.queue_id) == QUEUE][number]


def journal_file(root: Path, offset: int) -> tuple[Path, int]:
    """The file with a journal offset, and the byte there."""
    base = offset - offset % FILE_BYTES
    return root / "journal" / segment_name(base), offset - base


def patch_journal(root: Path, offset: int, data: bytes) -> None:
    """Overwrite some bytes of the journal."""
    path, position = journal_file(root, offset)
    patch(path, position, data)


def patch_field(root: Path, message: JournalMessage, name: str, value: int) -> None:
    """Overwrite a field of a record's head."""
    (declared,) = (each for each in HEAD.fields if each.name == name)
    patch_journal(root, message.journal_offset + HEAD.offset_of(name), struct.pack(">" + declared.code, value))


def patch_topic(root: Path, data: bytes) -> None:
    """Overwrite the first bytes of a record's topic."""
    message = of_queue(root)
    body = BODY_START + len(message.body)
    patch_journal(root, message.journal_offset + body + TOPIC_LENGTH.size, data)


def filler(root: Path) -> int:
    """Journal offset of the filler that ends the first file."""
    last = [each for each in journal_records(root) if each.journal_offset < FILE_BYTES][-1]
    return last.journal_offset + last.size


def queue_file(root: Path, number: int) -> tuple[Path, int]:
    """The file with an entry of the queue that is damaged, and the byte there."""
    position = number * ENTRY.size
    start = position - position % QUEUE_FILE_BYTES
    return root / "queue" / QUEUE[0] / str(QUEUE[1]) / segment_name(start), position - start


def entry(root: Path, number: int) -> jmq_queue.Entry:
    """An entry of that queue."""
    path, position = queue_file(root, number)
    found = jmq_queue.parse_entry(path.read_bytes(), position)
    assert found is not None
    return found


def put_entry(root: Path, number: int, value: jmq_queue.Entry) -> None:
    """Overwrite an entry, its CRC with it."""
    path, position = queue_file(root, number)
    patch(path, position, serialize_entry(value))


def clear_entry(root: Path, number: int) -> None:
    """Make zeros of an entry."""
    path, position = queue_file(root, number)
    patch(path, position, bytes(ENTRY.size))


def add_queue(root: Path, *entries: jmq_queue.Entry) -> None:
    """A queue of another topic."""
    path = root / "queue" / "another" / "0" / segment_name(0)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(map(serialize_entry, entries)).ljust(QUEUE_FILE_BYTES, b"\0"))


def queue_end(root: Path) -> int:
    """The number behind that queue's last message."""
    return 1 + max(each.queue_offset for each in journal_records(root) if (each.topic, each.queue_id) == QUEUE)


def swap_entries(root: Path) -> None:
    """Two entries in one another's place."""
    first, second = entry(root, 3), entry(root, 4)
    put_entry(root, 3, second)
    put_entry(root, 4, first)


def repeat_record(root: Path) -> None:
    """A record with the number of the one before it in its queue."""
    last = of_queue(root, -1)
    patch_field(root, last, "queue_offset", last.queue_offset - 1)
    clear_entry(root, last.queue_offset)


def set_checkpoint(root: Path, **changes: int) -> None:
    """Change what the checkpoint says, its CRC with it."""
    path = root / "checkpoint"
    found = parse_journal_checkpoint(path.read_bytes())
    assert isinstance(found, JournalCheckpoint)
    path.write_bytes(serialize_journal_checkpoint(found._replace(**changes)))


def put_offset(root: Path, topic: str, ack: int) -> None:
    """An offset file with one position."""
    position = {"ack": ack, "pull": max(ack, 0), "time": 5}
    consumers = {topic: {"shipping": {"0": position}}}
    (root / "offset" / "offset.json").write_text(json.dumps({"version": 1, "updated": 5, "consumers": consumers}))
