"""Agents, targets and large messages, for tests of copies at real servers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from commitlake.connectors.shipping.storage_target import StorageTarget
from commitlake.connectors.storage.adapter_choice import open_storage
from commitlake.pipelines.ship.agent import ShipAgent
from commitlake.pipelines.ship.settings import ShipSettings
from commitlake.pipelines.ship.source_store import SourceStore
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.logs import new_message

SIZE = 20 << 20
"""Size of a segment: several blocks of HDFS and of Azure's uploads, and an upload of several requests at Google."""
SMALL = 1 << 20
"""Size of a segment where it does not matter."""
FIRST = f"commitlog/{segment_name(0)}"


def large_messages(count: int, size: int = 1 << 20) -> list[Any]:
    """Return messages with bodies of some size."""
    chance = random.Random(count)
    return [new_message(number, body=chance.randbytes(size)) for number in range(count)]


def target_of(copy: str) -> StorageTarget:
    """Return a claimed target."""
    target = StorageTarget(open_storage(copy))
    target.claim()
    return target


def agent_of(store: Path, target: StorageTarget, settings: ShipSettings | None = None) -> ShipAgent:
    """Return an agent, by default with the usual settings."""
    return ShipAgent(SourceStore(str(store)), target, settings or ShipSettings("b"))
