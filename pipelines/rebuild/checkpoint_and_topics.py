"""Checkpoint and topics.json of a rebuilt store.

The checkpoint says that everything up to the log's end is on disk, as after a clean shutdown.

topics.json is the old one, with the topics that only the log has. The log has a topic's name, and its number of queues
is at least the largest queue id plus one. Topics in the old topics.json stay as they are; topics that a broker creates
itself when it starts are left out. No CRC covers a record's queue id: one that is far above the topic's other queue ids
comes from a damaged header, and is ignored, since clients would ask for millions of queues.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from commitlake.connectors.atomic_files import write_synced
from commitlake.connectors.formats.rocketmq.topic_configs import load_config_file
from commitlake.connectors.log_format.checkpoint_and_config import CHECKPOINT, RebuiltLog
from commitlake.connectors.reading.files.store_files import open_store_files
from commitlake.pipelines.rebuild.part_files import Queue, Totals
from commitlake.pipelines.rebuild.plan import RebuildPlan
from commitlake.pipelines.rebuild.settings import Settings
from commitlake.pipelines.verify.queue_files import QueueFiles
from commitlake.pipelines.verify.store_view import list_queues
from commitlake.schemas.layouts.boltmq.config_conversion import topics_to_boltmq
from commitlake.schemas.layouts.boltmq.dialect import ROCKETMQ, Dialect
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import BATCH_QUEUE_TYPE, QUEUE_TYPE
from commitlake.schemas.layouts.rocketmq.topics import TOPICS_FILE, TOPICS_TABLE, needs_topic_config
from commitlake.schemas.remoting.fastjson import serialize_fastjson
from commitlake.schemas.safe_store_files import read_file

_LOGGER = logging.getLogger(__name__)
_READ_AND_WRITE = 6
_LIKELY_NUMBER = 1024
_TIMES_AS_MANY = 8


def build_checkpoint(plan: RebuildPlan, totals: Totals, index_time: int) -> bytes:
    """Return the content of the file `checkpoint` for the rebuilt store.

    Args:
        plan: the run, whose output folder has the queues.
        totals: totals of the whole log.
        index_time: end of the last full IndexFile, ms; 0 for none.
    """
    settings = plan.settings
    log = RebuiltLog(
        start=plan.start,
        end=plan.end,
        last_offset=totals.last_offset,
        last_end=totals.last_end,
        last_time=totals.last_time,
        queued_offset=totals.queued_offset,
        queued_time=totals.queued_time,
        index_time=index_time,
        has_index_tags=settings.index_tags,
        entries=_count_queue_entries(plan.out, settings) if settings.format.small_files.counts_entries else 0,
    )
    return settings.format.small_files.new_checkpoint(plan.root, log)


def update_checkpoint_entry_count(output_folder: Path, settings: Settings) -> None:
    """Set the entry count in the file `checkpoint` to the number of entries of all queues in the folder."""
    path = output_folder / CHECKPOINT
    updated = settings.format.small_files.replace_entry_count(
        read_file(path), _count_queue_entries(output_folder, settings)
    )
    if updated is not None:
        write_synced(path, updated)


def _count_queue_entries(output_folder: Path, settings: Settings) -> int:
    """Return the number of entries of all queues in a folder, as the sum of their end offsets."""
    files, layout = open_store_files(str(output_folder)), settings.queue_layout
    return sum(
        QueueFiles(files, topic, queue_id, settings.queue_file_size, layout).find_written_end()
        for topic, queue_id in list_queues(files, layout)
    )


def find_unlikely_queues(queues: Collection[Queue]) -> frozenset[Queue]:
    """Return queues whose id is probably damaged: at least 1,024, and 8 times their topic's number of queues.

    Args:
        queues: all queues that have an entry.
    """
    chosen = [queue for queue in queues if queue.queue_id >= _LIKELY_NUMBER]
    if not chosen:
        return frozenset()
    counts = Counter(queue.topic for queue in queues)
    return frozenset(queue for queue in chosen if queue.queue_id >= _TIMES_AS_MANY * counts[queue.topic])


def build_topics_file(root: Path, queues: Iterable[Queue], timestamp: int, dialect: Dialect = ROCKETMQ) -> bytes:
    """Return the content of topics.json: the store's own, extended by the topics of the rebuilt queues.

    Args:
        root: the store's folder, whose own topics.json is extended.
        queues: queues that have an entry, without the unlikely ones.
        timestamp: store time of the newest record, ms; becomes the file's version.
        dialect: dialect of the broker that reads the file.
    """
    known = load_config_file(root, TOPICS_FILE, TOPICS_TABLE)
    document = known.content or {}
    if known.problem:
        instead = f"{root / known.name} is used" if document else "the topics are taken from the log alone"
        _LOGGER.warning(
            "%s: expected JSON with %s, found none (%s): %s", root / TOPICS_FILE, TOPICS_TABLE, known.problem, instead
        )
    table = document.setdefault(TOPICS_TABLE, {})
    found: dict[str, tuple[int, bool]] = {}
    for queue in queues:
        if needs_topic_config(queue.topic):
            count, is_batch = found.get(queue.topic, (0, False))
            found[queue.topic] = max(count, queue.queue_id + 1), is_batch or queue.is_batch
    for topic, (count, is_batch) in sorted(found.items()):
        table.setdefault(topic, _topic_config(topic, count, is_batch=is_batch))
    document.setdefault("dataVersion", {"counter": 1, "stateVersion": 0, "timestamp": timestamp})
    if not dialect.is_rocketmq:
        return json.dumps(topics_to_boltmq(document), ensure_ascii=False, separators=(",", ":")).encode()
    return str(serialize_fastjson(document)).encode()


def _topic_config(topic: str, queue_count: int, *, is_batch: bool) -> dict[str, Any]:
    return {
        "attributes": {QUEUE_TYPE: BATCH_QUEUE_TYPE} if is_batch else {},
        "order": False,
        "perm": _READ_AND_WRITE,
        "readQueueNums": queue_count,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic,
        "topicSysFlag": 0,
        "writeQueueNums": queue_count,
    }
