"""A store with a record of every kind, written by a real broker, with RocketMQ's description of each.

The broker runs with small files and short delays, and receives all messages of `ProduceEveryKind` and
`FailingConsumer`. If the machine has an IPv6 loopback address, the broker is then restarted there for more messages, so
that the log contains both kinds of hosts. At the end it is stopped cleanly.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import shutil
import time
from pathlib import Path

from tests.servers.cache import build_once, cache_folder, digest
from tests.servers.class_archives import JAVA_SOURCES
from tests.servers.java_programs import LostTracesError, Row, dump_store, fail_every_message, produce_every_kind
from tests.servers.process import is_free
from tests.servers.remoting import max_offset, pop_and_forget
from tests.servers.rocketmq import SMALL_FILES, RocketMQ

_LOGGER = logging.getLogger(__name__)

# Retries use the levels from 3 on. Messages of the last level stay in the schedule topic. A half message is first
# checked after its op record, which 5.x writes up to 3 s late, has certainly been written.
RECORDING_OPTIONS = dataclasses.replace(
    SMALL_FILES,
    message_delay_level="1s 2s 1s 1s 3s 1h",
    transaction_timeout_ms=4000,
    transaction_check_interval_ms=2000,
    has_batched_ops=True,
    extra={"transactionCheckMax": 3},
)
"""The settings of the recorded stores; a broker that is to load one needs the same file sizes."""

FAILING_TOPIC = "EveryFailing"
FAILING_GROUP = "every-failing"
MAX_RECONSUME_TIMES = 2

POPPED_TOPIC = "EveryTagged"
POPPED_COUNT = 7
LONG_GROUP = "EveryLongGroup_" + "g" * 105
"""A group of 120 characters, the most that 5.x allows."""
POP_RETRY_TOPIC = f"%RETRY%{LONG_GROUP}_{POPPED_TOPIC}"
"""Longer than a one-byte topic length allows (127), so its records have the V2 magic."""

IPV6_KINDS = ("plain", "keys", "batch", "zlib", "delay", "pending")


@dataclasses.dataclass(frozen=True)
class RecordedStore:
    """Store of a real broker, which must be copied before it is changed.

    Attributes:
        version: The RocketMQ version that wrote it.
        store: Its folder.
        sent: Sent messages, as ProduceEveryKind.java prints them.
        failed: Failed deliveries, as FailingConsumer.java prints them.
        decoded: All records in physical order, as RocketMQ's MessageDecoder reads them and DumpStore.java prints them.
        broker_port: Port of the broker; offset message ids contain it.
        has_ipv6: Whether a part of it was written by a broker on `::1`.
    """

    version: str
    store: Path
    sent: list[Row]
    failed: list[Row]
    decoded: list[Row]
    broker_port: int
    has_ipv6: bool

    def copy_to(self, folder: Path) -> Path:
        """Copy the store for a test that changes it, or lets a broker load it."""
        # With new file times, because a broker deletes segments by their age.
        shutil.copytree(self.store, folder, copy_function=shutil.copy)
        return folder


def recorded(version: str, folder: Path) -> RecordedStore:
    """Return a recorded store.

    It is written now, unless another process of this run has written it, or `COMMITLAKE_REUSE_RECORDED` is set and an
    earlier run has.

    Args:
        version: One of `VERSIONS`.
        folder: The run's folder for recorded stores.
    """
    if not os.environ.get("COMMITLAKE_REUSE_RECORDED"):
        return _load(build_once(folder / version, lambda beside: record(version, beside)))
    sources = sorted([*JAVA_SOURCES.glob("*.java"), *Path(__file__).parent.glob("*.py")])
    name = digest([version, *(source.read_text() for source in sources)])
    target = cache_folder() / "recorded" / f"{version}-{name}"
    return _load(build_once(target, lambda beside: record(version, beside)))


def record(version: str, folder: Path) -> None:
    """Run the servers and the programs, and write the store and `recorded.json` into a folder.

    If traces are missing, the recording is repeated once.
    """
    try:
        _record(version, folder)
    except LostTracesError as lost:
        _LOGGER.warning("recorded again: %s", lost)
        shutil.rmtree(folder)
        folder.mkdir()
        _record(version, folder)


def _record(version: str, folder: Path) -> None:
    has_ipv6 = is_free(0, "::1")
    with RocketMQ(version, folder, options=RECORDING_OPTIONS) as rocketmq:
        sent = produce_every_kind(rocketmq)
        if has_pop(version):
            pop_and_forget(rocketmq.broker_address, POPPED_TOPIC, LONG_GROUP, invisible_ms=1000)
        failed = fail_every_message(rocketmq, FAILING_TOPIC, FAILING_GROUP, MAX_RECONSUME_TIMES)
        if has_pop(version):
            _wait_for_pop_retries(rocketmq)
        if has_ipv6:
            rocketmq.stop_broker()
            rocketmq.start_broker(ip="::1")
            sent += produce_every_kind(rocketmq, *IPV6_KINDS)
    told = {
        "version": version,
        "sent": sent,
        "failed": [row for row in failed if row["event"] == "failed"],
        "decoded": dump_store(version, rocketmq.store),
        "broker_port": int(rocketmq.broker_address.rpartition(":")[2]),
        "has_ipv6": has_ipv6,
    }
    (folder / "recorded.json").write_text(json.dumps(told))


def has_pop(version: str) -> bool:
    """Return whether a version has pop consumption, timers and the V2 magic, as 5.x does."""
    return int(version.partition(".")[0]) >= 5


def _wait_for_pop_retries(rocketmq: RocketMQ, timeout_seconds: float = 60) -> None:
    """Wait until the broker has moved unacknowledged popped messages into the retry topic."""
    deadline = time.monotonic() + timeout_seconds
    while max_offset(rocketmq.broker_address, POP_RETRY_TOPIC) < POPPED_COUNT:
        if time.monotonic() > deadline:
            raise rocketmq.broker.error(f"put no {POPPED_COUNT} messages into {POP_RETRY_TOPIC}")
        time.sleep(0.2)


def _load(folder: Path) -> RecordedStore:
    """Read the result of `record`."""
    told = json.loads((folder / "recorded.json").read_text())
    return RecordedStore(store=folder / "store", **told)
