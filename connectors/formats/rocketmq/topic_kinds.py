"""Types of a RocketMQ store's queues, as topics.json or the folders of the queues show them.

Topics have simple queues or queues of batches. A store may also have light queues; see
`schemas.layouts.rocketmq.light_queues`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from commitlake.connectors.formats.rocketmq import batch_queues, consume_queues
from commitlake.connectors.formats.rocketmq.topic_configs import read_topics
from commitlake.connectors.log_format.queues import TopicKinds, can_hold_batches
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import has_batch_queues
from commitlake.schemas.layouts.rocketmq.topics import LIGHT_PREFIX, OFFSETS_FILES, TOPICS_TABLE
from commitlake.schemas.safe_store_files import folders_in

_CONFIG = "config"


def read_topic_kinds(root: Path) -> TopicKinds:
    """Return each topic's queue type from topics.json, or from the folders of its queues if it is not listed.

    Args:
        root: The store's folder.

    Raises:
        UnsafeFileError: if topics.json or a folder is a link or another kind of file.
    """
    listed = read_configured_kinds(root)
    in_simple = frozenset(folders_in(root / consume_queues.QUEUES.folder)) - listed.keys()
    in_batch = frozenset(folders_in(root / batch_queues.QUEUES.folder)) - listed.keys()
    batch = {topic for topic, is_batch in listed.items() if is_batch}
    simple = listed.keys() - batch
    possible = {topic for topic in in_batch - in_simple if can_hold_batches(topic)}
    return TopicKinds(frozenset(batch | possible), frozenset(simple | (in_simple - in_batch)))


def read_configured_kinds(root: Path) -> Mapping[str, bool]:
    """Return, for each topic in topics.json, whether its queues are BatchConsumeQueues."""
    table = read_topics(root).get(TOPICS_TABLE, {})
    return {
        str(topic): isinstance(config, dict) and has_batch_queues(config.get("attributes"))
        for topic, config in table.items()
    }


def may_have_light_queues(root: Path) -> bool:
    """Return whether a store may have light queues, to which a broker with `enableLmq` adds records.

    Any producer can send a message with the names and offsets of light queues. A broker without `enableLmq` ignores
    them; this is the default. One with `enableLmq` has such queues, or writes its offsets to a file of their own. If
    all queues are missing, only the log can show that the store had some.

    Args:
        root: the store's folder.
    """
    queues = folders_in(root / consume_queues.QUEUES.folder)
    if any(name.startswith(LIGHT_PREFIX) for name in queues):
        return True
    if any((root / _CONFIG / f"{OFFSETS_FILES[1]}{suffix}").exists() for suffix in ("", ".bak")):
        return True
    return not queues and not folders_in(root / batch_queues.QUEUES.folder)
