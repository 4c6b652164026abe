"""`commitlake topics` is killed anywhere, and run again: each message of a real broker is once a row or once a misfit.

The broker gets messages, which are archived, between the runs. Every second run is killed at a step around a commit,
and the others at any moment.

TEST_KILLS=40 pytest tests/integration/killed/test_killed_topics.py
"""

from __future__ import annotations

import datetime
import json
import random
import signal
from collections import Counter
from collections.abc import Iterator
from itertools import chain, cycle, repeat
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.rocketmq import Admin, ClientOptions, OutgoingMessage, Producer
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.pipelines.archive.run import Config, run_archive
from tests.integration.killed.child import TOPIC_STEPS, TOPICS
from tests.servers.rocketmq import SMALL_FILES, VERSIONS, RocketMQ
from tests.support.archive_processes import PATIENCE_SECONDS, archive, begin, launched_ahead, ready
from tests.support.kills import kill_count
from tests.support.lakes import rows_of
from tests.support.topic_reading import make_topic
from tests.support.waiting import let_pass

KILLS = kill_count(3)
TYPED, OTHER = ("orders", "payments"), "not-configured"
GROWTH = 90
SCHEMA = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
MISFITS = (b"no json", b'{"id": "%d"}', b'{"other": %d}')
Place = tuple[str, int, int]
"""Topic, queue and offset in the queue."""


class TypedBroker:
    """A real broker, the lake of its store, and what was sent to it.

    Attributes:
        topics_file: the configuration of the typed topics.
        rows: the number in the document of each message that fits.
        misfits: places of the messages that do not fit.
    """

    def __init__(self, servers: RocketMQ, folder: Path) -> None:
        self.lake = Lake(str(folder / "lake"))
        self.topics_file = folder / "topics.toml"
        self.rows: dict[Place, int] = {}
        self.misfits: set[Place] = set()
        self._config = Config(str(servers.store), self.lake, servers.broker_name, parser_version="1")
        self._options = ClientOptions(servers.name_server_address)
        self._count = 0
        (folder / "any.schema.json").write_text(json.dumps(SCHEMA))
        self.topics_file.write_text(
            "".join(f'[topics.{name}]\nschema = "any.schema.json"\non_misfit = "quarantine"\n' for name in TYPED)
        )
        with Admin(self._options) as admin:
            for topic in (*TYPED, OTHER):
                make_topic(admin, topic, 2)

    def grow(self) -> None:
        """Send messages to all topics, rows and misfits, and archive them."""
        with Producer("KilledTopics", self._options) as producer:
            for number in range(self._count, self._count + GROWTH):
                topic = (*TYPED, OTHER)[number % 3]
                is_misfit = number // 3 % 4 == 0
                body = MISFITS[number // 12 % 3] if is_misfit else b'{"id": %d}'
                sent = producer.send(OutgoingMessage(topic, body % number if b"%" in body else body))
                place = topic, sent.queue.queue_id, sent.queue_offset
                if topic == OTHER:
                    continue
                if is_misfit:
                    self.misfits.add(place)
                else:
                    self.rows[place] = number
        self._count += GROWTH
        run_archive(HERE, self._config)

    def check(self) -> None:
        """Compare tables and misfits with what was sent, and by topic and hour with what was archived."""
        rows = list(chain.from_iterable(rows_of(self.lake.uri(f"topics/{topic}")) for topic in TYPED))
        misfits = rows_of(self.lake.uri("topic_misfits"))
        archived = rows_of(self.lake.uri("messages"))
        assert sorted((place(row, "_"), row["id"]) for row in rows) == sorted(self.rows.items())
        assert sorted(map(place, misfits)) == sorted(self.misfits)
        typed = [row for row in archived if row["topic"] in TYPED]
        assert by_topic_and_hour(rows, "_") == by_topic_and_hour(typed) - by_topic_and_hour(misfits)
        assert sum(row["topic"] == OTHER for row in archived) == self._count // 3


def place(row: dict[str, Any], prefix: str = "") -> Place:
    """Return the place of a message; the columns of typed rows have a prefix."""
    return row[f"{prefix}topic"], row[f"{prefix}queue_id"], row[f"{prefix}queue_offset"]


def by_topic_and_hour(rows: list[dict[str, Any]], prefix: str = "") -> Counter[tuple[str, datetime.datetime]]:
    """Return numbers of rows by topic and hour of storage."""
    return Counter(
        (row[f"{prefix}topic"], row[f"{prefix}store_timestamp"].replace(minute=0, second=0, microsecond=0))
        for row in rows
    )


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TypedBroker]:
    """A broker of the newest version, with some messages."""
    with RocketMQ(VERSIONS[0], tmp_path / "rocketmq", options=SMALL_FILES) as servers:
        made = TypedBroker(servers, tmp_path)
        made.grow()
        yield made


@pytest.mark.long("each run begins a JVM; runs that ended between two commits are completed on Spark each time")
@pytest.mark.kills
@pytest.mark.timeout(240 + 90 * KILLS)
def test_killed_updates_lose_and_duplicate_no_message(broker: TypedBroker) -> None:
    chance = random.Random(4711)
    lake = Path(broker.lake.root)
    seconds = archive(TOPICS, broker.topics_file, lake)
    steps = list(chain.from_iterable(zip(cycle(TOPIC_STEPS), repeat(None, KILLS), strict=False)))
    killed: Counter[str] = Counter()
    with launched_ahead(TOPICS, broker.topics_file, lake, steps) as processes:
        for step, launched in zip(steps, processes, strict=True):
            broker.grow()
            with ready(launched) as process:
                begin(process)
                if step is None:
                    let_pass(chance.uniform(0, seconds), "it is killed at any moment")
                    killed["at any moment"] += process.poll() is None
                else:
                    assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL, step
                    killed[step] += 1
            if killed.total() == KILLS:
                break
    assert killed.total() == KILLS, f"too many runs ended before they were killed: {killed}"
    print(f"killed: {dict(killed)}")
    archive(TOPICS, broker.topics_file, lake)
    broker.check()
