"""Ways to damage files that only a JMQ store has; each takes the store's folder."""

from __future__ import annotations

import json
from pathlib import Path

from commitlake.schemas.layouts.jmq.checkpoint import (
    JournalCheckpoint,
    parse_journal_checkpoint,
    serialize_journal_checkpoint,
)
from commitlake.schemas.layouts.jmq.queue_file import JmqQueueEntry, serialize_entry
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.store_damages import JMQ


def add_queue(root: Path, *entries: JmqQueueEntry) -> None:
    """Create a queue of another topic."""
    path = root / "queue" / "another" / "0" / segment_name(0)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(map(serialize_entry, entries)).ljust(JMQ.queue_file_bytes, b"\0"))


def set_checkpoint(root: Path, **changes: int) -> None:
    """Change values of the checkpoint, and update its CRC."""
    path = root / "checkpoint"
    found = parse_journal_checkpoint(path.read_bytes())
    assert isinstance(found, JournalCheckpoint)
    path.write_bytes(serialize_journal_checkpoint(found._replace(**changes)))


def put_offset(root: Path, topic: str, ack: int) -> None:
    """Write an offset file with one position."""
    position = {"ack": ack, "pull": max(ack, 0), "time": 5}
    consumers = {topic: {"shipping": {"0": position}}}
    (root / "offset" / "offset.json").write_text(json.dumps({"version": 1, "updated": 5, "consumers": consumers}))
