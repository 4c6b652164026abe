"""A store compared with a list: after any steps, it has the put messages in order."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from commitlake.broker_lite.stores.rocketmq import MessageStore, PutResult, StoreOptions
from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ
from commitlake.schemas.layouts.rocketmq.commitlog import MAX_V1_TOPIC_LENGTH, NewMessage
from tests.support.hypothesis_profiles import load
from tests.support.message_stores import SMALL, log_records, message
from tests.support.small_stores import Clock, all_messages, crash

load()

TOPICS = st.sampled_from(["orders", "payments", "%RETRY%" + "g" * 130, "SCHEDULE_TOPIC_XXXX", "SCHEDULE_TOPIC_XXX"])
KEYS = st.lists(st.sampled_from(["a", "b", "Aa", "BB", "订单", "😀"]), max_size=3).map(" ".join)
BODIES = st.integers(0, 900).map(lambda size: b"x" * size)


@st.composite
def messages(draw: st.DrawFn, topic: str, queue_id: int) -> NewMessage:
    """Draw a message for a queue."""
    properties = {"KEYS": draw(KEYS), "TAGS": draw(st.sampled_from(["", "t1", "t2"])), "DELAY": "2"}
    return message(
        topic=topic,
        queue_id=queue_id,
        body=draw(BODIES),
        properties=tuple((key, value) for key, value in properties.items() if value),
    )


@st.composite
def batches(draw: st.DrawFn) -> list[NewMessage]:
    """Draw a batch for one queue that no broker refuses."""
    place = draw(TOPICS), draw(st.integers(0, 2))
    return draw(st.lists(messages(*place), min_size=1, max_size=2))


class StoreModel(RuleBasedStateMachine):
    """Puts, restarts and crashes in any order."""

    options: ClassVar[StoreOptions] = SMALL
    longest_topic: ClassVar[int | None] = None

    @initialize()
    def open_new(self) -> None:
        """Open a new store."""
        self.folder = Path(tempfile.mkdtemp(prefix="store-model-"))
        self.root = self.folder / "store"
        self.clock = Clock()
        self.put: list[tuple[NewMessage, PutResult]] = []
        self.store = MessageStore.open(self.root, self.options, clock=self.clock)

    def teardown(self) -> None:
        """Close and delete the store."""
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)

    @rule(batch=batches(), together=st.booleans())
    def put_messages(self, batch: list[NewMessage], together: bool) -> None:
        """Put messages as a batch, or one by one."""
        batch = [replace(one, topic=one.topic[: self.longest_topic]) for one in batch]
        results = self.store.put_batch(batch) if together else [self.store.put(one) for one in batch]
        self.put.extend(zip(batch, results, strict=True))

    @rule(step_ms=st.integers(1, 100_000))
    def let_time_pass(self, step_ms: int) -> None:
        """Advance the clock."""
        self.clock.now_ms += step_ms

    @rule(clean=st.booleans(), lost=st.sets(st.sampled_from(["consumequeue", "index", "checkpoint", "config"])))
    def open_again(self, clean: bool, lost: set[str]) -> None:
        """Close or crash, lose some of the derived files, and open."""
        before = self.index_bytes()
        self.store.close() if clean else crash(self.store)
        for name in lost:
            path = self.root / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        self.store = MessageStore.open(self.root, self.options, clock=self.clock)
        assert self.store.recovery.crashed is not clean
        assert self.store.max_physical_offset == (sum(self.put[-1][1][:2]) if self.put else 0)
        if "index" in lost:
            assert self.index_bytes() == before

    def index_bytes(self) -> list[bytes]:
        """Return the index files, oldest first."""
        return [path.read_bytes() for path in sorted((self.root / "index").iterdir())]

    @invariant()
    def queues_have_all_put_messages(self) -> None:
        """Check that the queues have exactly the put messages, each at its offset."""
        expected: dict[tuple[str, int], list[tuple[bytes, PutResult]]] = defaultdict(list)
        for one, result in self.put:
            place = expected[one.topic, one.queue_id]
            assert result.queue_offset == len(place)
            place.append((one.body, result))
        found = {
            place: [
                (got.body, PutResult(got.physical_offset, got.size, number, got.store_timestamp, got.store_host))
                for number, got in enumerate(queue)
            ]
            for place, queue in all_messages(self.store).items()
        }
        assert found == expected

    @invariant()
    def log_has_all_put_messages(self) -> None:
        """Check the same in the files, read without the store."""
        records = [(record.topic, record.body, record.physical_offset) for record in log_records(self.root)]
        assert records == [(one.topic, one.body, result.physical_offset) for one, result in self.put]

    @invariant()
    def keys_find_all_their_messages(self) -> None:
        """Check that keys find exactly their messages, for any hashes, in a store that has an index."""
        if not self.options.has_index:
            return
        wanted: dict[tuple[str, str], set[int]] = defaultdict(set)
        for one, result in self.put:
            for key in dict(one.properties).get("KEYS", "").split():
                wanted[one.topic, key].add(result.physical_offset)
        for (topic, key), offsets in wanted.items():
            found = self.store.get_by_key(topic, key, limit=len(self.put))
            assert {got.physical_offset for got in found} == offsets

    @invariant()
    def times_find_the_first_message_from_then_on(self) -> None:
        """Check look-ups by time in every queue."""
        for topic, queue_id in self.store.queues:
            times = [
                result.store_timestamp for one, result in self.put if (one.topic, one.queue_id) == (topic, queue_id)
            ]
            for time in set(times):
                assert self.store.offset_by_time(topic, queue_id, time) == times.index(time)


class BoltmqStoreModel(StoreModel):
    """The same for a store in BoltMQ's dialect."""

    options = replace(SMALL, dialect=BOLTMQ)
    longest_topic = MAX_V1_TOPIC_LENGTH


TestStoreModel = StoreModel.TestCase
TestStoreModel.settings = settings(max_examples=max(7, settings().max_examples // 8), stateful_step_count=25)
TestBoltmqStoreModel = BoltmqStoreModel.TestCase
TestBoltmqStoreModel.settings = settings(max_examples=max(3, settings().max_examples // 16), stateful_step_count=25)
