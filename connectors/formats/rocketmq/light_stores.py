"""Stores whose broker dispatches records to light queues; see `schemas.layouts.rocketmq.light_queues`."""

from __future__ import annotations

from pathlib import Path

from commitlake.connectors.formats.rocketmq.batch_queues import QUEUES as BATCH_QUEUES
from commitlake.connectors.formats.rocketmq.consume_queues import QUEUES
from commitlake.schemas.layouts.rocketmq.light_queues import LIGHT_PREFIX
from commitlake.schemas.layouts.rocketmq.topics import OFFSETS_FILES
from commitlake.schemas.store_files import folders_in

_CONFIG = "config"


def may_have_light_queues(root: Path) -> bool:
    """Return whether a store may have light queues, to which a broker with `enableLmq` adds records.

    Any producer can send a message with the names and offsets of light queues. A broker without `enableLmq` ignores
    them; this is the default. One with `enableLmq` has such queues, or writes its offsets to a file of their own. If
    all queues are missing, only the log can show that the store had some.

    Args:
        root: the store's folder.
    """
    queues = folders_in(root / QUEUES.folder)
    if any(name.startswith(LIGHT_PREFIX) for name in queues):
        return True
    if any((root / _CONFIG / f"{OFFSETS_FILES[1]}{suffix}").exists() for suffix in ("", ".bak")):
        return True
    return not queues and not folders_in(root / BATCH_QUEUES.folder)
