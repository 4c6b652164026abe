"""Records of a damaged log that a real broker serves: before, and after a salvage and a rebuild."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.rocketmq.options import ClientOptions
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.pipelines.rebuild.run import rebuild_store
from commitlake.pipelines.rebuild.settings import RequestedSettings
from commitlake.pipelines.salvage.run import salvage_store
from tests.servers.rocketmq import FAST_JVM, BrokerOptions, RocketMQ

VERSION = "5.5.0"


@dataclass(frozen=True, slots=True)
class Served:
    """Counts of the intact records.

    Attributes:
        intact: number of intact records.
        itself: number served by a broker that is started on the damaged log, and builds its indexes from it.
        salvaged: number served by a broker that is started on the salvaged log.
    """

    intact: int
    itself: int
    salvaged: int


def serve(damaged: Path, intact: Array, work: Path) -> Served:
    """Start brokers on both logs, and pull all messages.

    Args:
        damaged: a store without indexes; its broker changes it.
        intact: physical offsets of the records that no fault touched.
        work: folder for the salvaged store, and for what the brokers write.
    """
    (store,) = find_stores(str(damaged), "a", formats=COMMITLOGS)
    clean = salvage_store(store, work / "clean").out
    (store,) = find_stores(str(clean), "a", formats=COMMITLOGS)
    rebuild_store(store, clean, RequestedSettings(close_heads=True))
    topics = sorted(path.name for path in (clean / "consumequeue").iterdir())
    segment = max(path.stat().st_size for path in (damaged / "commitlog").iterdir())
    salvaged = np.isin(_pulled(clean, topics, segment, work / "on-clean"), intact).sum()
    # With the topics that were found, because messages are measured, not configuration.
    shutil.copytree(clean / "config", damaged / "config", dirs_exist_ok=True)
    (damaged / "abort").touch()
    itself = np.isin(_pulled(damaged, topics, segment, work / "on-damaged"), intact).sum()
    return Served(len(intact), int(itself), int(salvaged))


def _pulled(store: Path, topics: list[str], segment_bytes: int, folder: Path) -> Array:
    """Return the physical offsets of all messages that a broker serves."""
    options = BrokerOptions(segment_size_bytes=segment_bytes)
    found: list[int] = []
    with (
        RocketMQ(VERSION, folder, store=store, options=options, jvm=FAST_JVM) as servers,
        Puller("salvage", ClientOptions(servers.name_server_address)) as puller,
    ):
        for topic in topics:
            for queue in puller.queues(topic):
                messages = puller.read(queue, puller.min_offset(queue), puller.max_offset(queue))
                found.extend(message.physical_offset for message in messages)
    return np.array(found, np.int64)
