"""A store in JMQ's layout compared with a list: after any steps, it has the put messages in order."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from commitlake.broker_lite.stores.jmq import JournalPutResult, JournalStore
from commitlake.schemas.layouts.jmq.journal import NewJournalMessage
from commitlake.schemas.layouts.rocketmq.hosts import Host
from tests.support.hypothesis_profiles import load
from tests.support.journal_stores import SMALL, journal_records
from tests.support.journals import original_body
from tests.support.small_stores import Clock, all_messages, crash

load()

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
BODIES = st.one_of(
    st.binary(max_size=300),
    st.integers(0, 1500).map(lambda size: b"x" * size),
    st.randoms(use_true_random=False).map(lambda chance: chance.randbytes(chance.randrange(900))),
)
OPTIONS = replace(SMALL, queue_weights={"payments": (1, 0, 3)})


@st.composite
def messages(draw: st.DrawFn, topics: tuple[str, ...] = ("orders", "payments", "t" * 127)) -> NewJournalMessage:
    """Draw a message that no broker refuses."""
    is_ordered = draw(st.booleans())
    return NewJournalMessage(
        topic=draw(st.sampled_from(topics)),
        body=draw(BODIES),
        send_timestamp=draw(st.integers(0, 1 << 42)),
        client_address=draw(st.builds(Host, st.binary(min_size=4, max_size=4), st.integers(0, 65535))),
        app=draw(TEXTS),
        business_id=draw(TEXTS.filter(bool) if is_ordered else TEXTS),
        business_tag=draw(st.integers(0, 65535)),
        priority=draw(st.integers(0, 255)),
        is_ordered=is_ordered,
        properties=draw(st.lists(st.tuples(TEXTS.filter(bool), TEXTS), max_size=3)),
    )


FIELDS = ("topic", "send_timestamp", "client_address", "app", "business_id", "business_tag", "priority", "is_ordered")


def put_fields(message: NewJournalMessage) -> tuple[object, ...]:
    """Return the fields that a message's producer sets."""
    return (*(getattr(message, name) for name in FIELDS), message.body, list(message.properties))


BATCHES = st.lists(messages(("orders",)).map(lambda one: replace(one, is_ordered=False)), min_size=1, max_size=2)


class JournalModel(RuleBasedStateMachine):
    """Puts, restarts and crashes in any order."""

    @initialize()
    def open_new(self) -> None:
        """Open a new store."""
        self.folder = Path(tempfile.mkdtemp(prefix="journal-model-"))
        self.root = self.folder / "store"
        self.clock = Clock()
        self.put: list[tuple[NewJournalMessage, JournalPutResult]] = []
        self.store = JournalStore.open(self.root, OPTIONS, clock=self.clock)

    def teardown(self) -> None:
        """Close and delete the store."""
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)

    @rule(message=messages())
    def put_message(self, message: NewJournalMessage) -> None:
        """Put one message."""
        self.put.append((message, self.store.put(message)))

    @rule(batch=BATCHES)
    def put_batch(self, batch: list[NewJournalMessage]) -> None:
        """Put several messages together."""
        self.put.extend(zip(batch, self.store.put_batch(batch), strict=True))

    @rule(step_ms=st.integers(1, 100_000))
    def let_time_pass(self, step_ms: int) -> None:
        """Advance the clock."""
        self.clock.now_ms += step_ms

    @rule()
    def flush(self) -> None:
        """Flush the store; a crash may follow."""
        self.store.flush()

    @rule(clean=st.booleans(), lost=st.sets(st.sampled_from(["queue", "checkpoint", "offset", "one queue"])))
    def open_again(self, clean: bool, lost: set[str]) -> None:
        """Close or crash, lose some of the derived files, and open."""
        self.store.close() if clean else crash(self.store)
        for name in lost - {"one queue"}:
            path = self.root / name
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        if "one queue" in lost and "queue" not in lost and self.put:
            last = self.put[-1][1]
            shutil.rmtree(self.root / "queue" / last.topic / str(last.queue_id))
        self.store = JournalStore.open(self.root, OPTIONS, clock=self.clock)
        assert self.store.recovery.crashed is not clean
        end = self.put[-1][1].journal_offset + self.put[-1][1].size if self.put else 0
        assert self.store.max_journal_offset == end

    @invariant()
    def queues_have_all_put_messages(self) -> None:
        """Check that the queues have exactly the put messages, each at its offset."""
        expected: dict[tuple[str, int], list[tuple[object, ...]]] = defaultdict(list)
        for message, result in self.put:
            place = expected[result.topic, result.queue_id]
            assert result.queue_offset == len(place)
            place.append((*put_fields(message), result.journal_offset, result.size))
        found = {
            place: [
                (
                    *(getattr(got, name) for name in FIELDS),
                    original_body(got),
                    got.property_pairs,
                    got.journal_offset,
                    got.size,
                )
                for got in queue
            ]
            for place, queue in all_messages(self.store).items()
        }
        assert found == expected

    @invariant()
    def journal_has_all_put_messages(self) -> None:
        """Check the same in the files, read without the store."""
        records = [(one.topic, one.journal_offset, one.queue_offset) for one in journal_records(self.root)]
        assert records == [(result.topic, result.journal_offset, result.queue_offset) for _, result in self.put]


TestJournalModel = JournalModel.TestCase
TestJournalModel.settings = settings(max_examples=max(7, settings().max_examples // 8), stateful_step_count=25)


@given(st.lists(messages(), max_size=12))
def test_any_list_of_messages_reads_back_equal(sent: list[NewJournalMessage]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with JournalStore.open(folder, OPTIONS) as store:
            results = [store.put(message) for message in sent]
        with JournalStore.open(folder, OPTIONS) as store:
            for message, result in zip(sent, results, strict=True):
                (got,) = store.get(result.topic, result.queue_id, result.queue_offset, 1).messages
                found = (*(getattr(got, name) for name in FIELDS), original_body(got), got.property_pairs)
                assert found == put_fields(message)
            assert sum(map(len, all_messages(store).values())) == len(sent)
