"""Ways to damage a store, each by its name; every one takes the store's folder."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from commitlake.connectors.formats.engine.records import walk_store
from commitlake.connectors.formats.engine.stores import find_stores
from commitlake.schemas.layouts.rocketmq import consumequeue, indexfile
from commitlake.schemas.layouts.rocketmq.checkpoint import Checkpoint, serialize_checkpoint
from commitlake.schemas.layouts.rocketmq.commitlog import HEAD, Message
from commitlake.schemas.layouts.rocketmq.consumequeue import ENTRY, PRE_BLANK, serialize_entry
from commitlake.schemas.layouts.segments import segment_name
from tests.support.indexed_stores import QUEUE_FILE_ENTRIES, SEGMENT_BYTES

Damage = Callable[[Path], None]
QUEUE = ("topic-1", 1)
QUEUE_FILE_BYTES = QUEUE_FILE_ENTRIES * ENTRY.size


def messages(root: Path) -> list[Message]:
    """Every record of the log."""
    (store,) = find_stores(str(root))
    return [record.message for record in walk_store(store, SEGMENT_BYTES) if record.message is not None]


def patch(path: Path, position: int, data: bytes) -> None:
    """Overwrite some bytes of a file."""
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def segment(root: Path, offset: int) -> tuple[Path, int]:
    """The segment with a physical offset, and the byte there."""
    base = offset - offset % SEGMENT_BYTES
    return root / "commitlog" / segment_name(base), offset - base


def patch_log(root: Path, offset: int, data: bytes) -> None:
    """Overwrite some bytes of the log."""
    path, position = segment(root, offset)
    patch(path, position, data)


def patch_field(root: Path, message: Message, name: str, value: int) -> None:
    """Overwrite a field of a record's head."""
    (declared,) = (each for each in HEAD.fields if each.name == name)
    patch_log(root, message.physical_offset + HEAD.offset_of(name), struct.pack(">" + declared.code, value))


def patch_topic(root: Path, message: Message, data: bytes) -> None:
    """Overwrite some letters in the middle of a record's topic."""
    path, position = segment(root, message.physical_offset)
    at = path.read_bytes().index(message.topic.encode(), position)
    patch(path, at + 2, data)


def queue_file(root: Path, number: int, queue: tuple[str, int] = QUEUE) -> tuple[Path, int]:
    """The file with an entry, and the byte there."""
    position = number * ENTRY.size
    start = position - position % QUEUE_FILE_BYTES
    return root / "consumequeue" / queue[0] / str(queue[1]) / segment_name(start), position - start


def entry(root: Path, number: int) -> consumequeue.Entry:
    """An entry of the queue that is damaged."""
    path, position = queue_file(root, number)
    return consumequeue.parse_entry(path.read_bytes(), position)


def put_entry(root: Path, number: int, value: consumequeue.Entry) -> None:
    """Overwrite an entry of that queue."""
    path, position = queue_file(root, number)
    patch(path, position, serialize_entry(value))


def queue_end(root: Path) -> int:
    """The number behind that queue's last message."""
    return 1 + max(each.queue_offset for each in messages(root) if (each.topic, each.queue_id) == QUEUE)


def index_paths(root: Path) -> list[Path]:
    """The index files, oldest first."""
    return sorted((root / "index").iterdir())


def index_entry(path: Path, number: int) -> indexfile.Entry:
    """An entry of an index file."""
    return indexfile.parse_entry(path.read_bytes(), indexfile.geometry_of(path.stat().st_size).entry_position(number))


def put_index_entry(path: Path, number: int, value: indexfile.Entry) -> None:
    """Overwrite it."""
    position = indexfile.geometry_of(path.stat().st_size).entry_position(number)
    patch(path, position, indexfile.serialize_entry(value))


def index_header(path: Path) -> indexfile.Header:
    """The header of an index file."""
    return indexfile.parse_header(path.read_bytes())


def put_index_header(path: Path, value: indexfile.Header) -> None:
    """Overwrite it."""
    patch(path, 0, indexfile.serialize_header(value))


def chained(path: Path, *, at_end: bool) -> int:
    """The number of an entry whose chain goes on behind it, or ends with it; not the first, nor its slot's newest."""
    geometry = indexfile.geometry_of(path.stat().st_size)
    entries = {number: index_entry(path, number) for number in range(2, geometry.entries)}
    led_to = {each.previous_entry for each in entries.values()}
    return next(number for number, each in entries.items() if number in led_to and (each.previous_entry == 0) is at_end)


def set_checkpoint(root: Path, **changes: int) -> None:
    """Write a checkpoint."""
    (root / "checkpoint").write_bytes(serialize_checkpoint(Checkpoint(**changes)))


def swap_entries(root: Path) -> None:
    """Two entries of a queue in one another's place."""
    first, second = entry(root, 3), entry(root, 4)
    put_entry(root, 3, second)
    put_entry(root, 4, first)


def repeat_record(root: Path) -> None:
    """A record with the number of the one before it in its queue."""
    found = [each for each in messages(root) if (each.topic, each.queue_id) == QUEUE]
    patch_field(root, found[-1], "queue_offset", found[-1].queue_offset - 1)
    path, position = queue_file(root, found[-1].queue_offset)
    patch(path, position, bytes(ENTRY.size))


def filler_in_the_middle(root: Path) -> None:
    """An entry as a queue that was made late begins with."""
    put_entry(root, 5, PRE_BLANK)


def reused_segment(root: Path) -> None:
    """The bytes of one segment in another's file."""
    source, _ = segment(root, SEGMENT_BYTES)
    target, _ = segment(root, 2 * SEGMENT_BYTES)
    target.write_bytes(source.read_bytes())


def swap_slots(root: Path) -> None:
    """Two slots of an index file in one another's place."""
    path = index_paths(root)[1]
    geometry = indexfile.geometry_of(path.stat().st_size)
    content = path.read_bytes()
    size = indexfile.SLOT.size
    used = [slot for slot in range(geometry.slots) if any(content[geometry.slot_position(slot) :][:size])][:2]
    first, second = (geometry.slot_position(slot) for slot in used)
    patch(path, first, content[second : second + size])
    patch(path, second, content[first : first + size])


def filler(root: Path) -> int:
    """Physical offset of the filler that ends the first segment."""
    last = [each for each in messages(root) if each.physical_offset < SEGMENT_BYTES][-1]
    return last.physical_offset + last.size


def in_second_half(root: Path) -> int:
    """A byte of the third segment that is in the middle of a record."""
    begin = 2 * SEGMENT_BYTES
    found = [
        each.physical_offset - begin for each in messages(root) if 0 < each.physical_offset - begin < SEGMENT_BYTES
    ]
    return found[len(found) // 2] + 20


def stale_record(root: Path) -> None:
    """A record behind a damaged one with a number that others of its queue have already, and no entry."""
    of_queue = [each for each in messages(root) if (each.topic, each.queue_id) == QUEUE]
    last = of_queue[-1]
    before = messages(root)[messages(root).index(last) - 1]
    patch_field(root, before, "magic", 7)
    patch_field(root, last, "queue_offset", 0)
    path, position = queue_file(root, last.queue_offset)
    patch(path, position, bytes(ENTRY.size))
