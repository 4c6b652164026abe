"""For any messages, archived in any number of runs, `edges` is the same as after one run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.edges.table_update import follow_edges
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from tests.support.lakes import GrowingLake, archive_store
from tests.support.message_families import (
    begun,
    committed,
    dead,
    decided,
    delayed,
    delivered,
    ended,
    failed,
    given_up,
    half,
    op,
    pub,
    record,
    trace,
)

Places = dict[str, int]
Event = tuple[float, str, Callable[[Places], NewMessage]]
SHAPES = (
    "plain",
    "in order",
    "delayed",
    "waiting",
    "retried",
    "dead",
    "committed",
    "rolled back",
    "pending",
    "given up",
    "sent again",
    "refused",
)
_EXAMPLES = max(3, settings().max_examples // 8)


@dataclass
class OtherStore(GrowingLake):
    """A second broker's store, which has the trace messages."""

    @property
    def store(self) -> Path:
        """The store's folder."""
        return self.folder / "broker-b"


@dataclass
class Stores:
    """Two stores, which grow by events.

    Attributes:
        folder: the folder of both stores.
        places: physical offsets of records by their names, and numbers of half messages.
    """

    folder: Path
    places: Places = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.main, self.other = GrowingLake(self.folder), OtherStore(self.folder)

    def write(self, event: Event) -> None:
        """Store a record where it belongs."""
        _, name, make = event
        message = make(self.places)
        if name.startswith("trace"):
            self.other.write([message])
            return
        self.places[name] = len(self.main.log)
        if name.endswith("half"):
            self.places[f"number of {name}"] = sum(key.startswith("number of") for key in self.places)
        self.main.write([message])


def story(number: int, shape: str, start: float, traced: bool) -> list[Event]:
    """Return the records that a message of some shape leaves."""
    key, origin = f"U{number}", f"{number} first"
    if shape in {"plain", "refused"}:  # its application sent it again after a refusal
        at = start + 30 * (shape == "refused")
        events: list[Event] = [(at, origin, lambda _: record(key, seconds=at))]
    elif shape == "in order":  # a failure without a copy, and a message so late that a copy would exist by then
        events = [(start, origin, lambda _: record(key, seconds=start))]
        events.append((start + 90, f"{number} later", lambda _: record(f"{key} later", seconds=start + 90)))
    elif shape in {"delayed", "waiting"}:
        events = [(start, origin, lambda _: delayed(key, start))]
        if shape == "delayed":
            events.append((start + 10, f"{number} copy", lambda _: delivered(key, start + 10)))
    elif shape == "sent again":  # by an application, with the same unique key
        events = [(start, origin, lambda _: record(key, seconds=start))]
        events.append((start + 40, f"{number} again", lambda _: record(key, seconds=start + 40)))
        for at in (start + 10, start + 50):
            copies = _client_retry(key, at)
            events += [(at + 5 * copy, f"{number} {at} {copy}", copies[copy]) for copy in (0, 1)]
    elif shape in {"retried", "dead"}:
        events = [(start, origin, lambda _: record(key, seconds=start))]
        for attempt in (1, 2):
            at = start + 20 * attempt
            for copy in (0, 1):
                events.append((at + 10 * copy, f"{number} {attempt} {copy}", _retry(key, attempt, origin, at, copy)))
        if shape == "dead":
            events.append((start + 70, f"{number} dead", lambda places: dead(key, 3, places[origin], start + 70)))
    else:
        events = _transaction(number, shape, start)
    if traced:
        events += _traces(number, shape, start)
    return events


def _retry(key: str, attempt: int, origin: str, at: float, copy: int) -> Callable[[Places], NewMessage]:
    return lambda places: failed(key, attempt, places[origin], at)[copy]


def _client_retry(key: str, at: float) -> list[Callable[[Places], NewMessage]]:
    """Return a waiting copy and its delivery, as a client that consumes in order sends them."""
    more: dict[str, Any] = {
        "topic": "%RETRY%shop", "reconsume_times": 1, "properties": {"RETRY_TOPIC": "orders", "RECONSUME_TIME": 1},
    }  # fmt: skip
    return [lambda _: delayed(key, at, **more), lambda _: delivered(key, at + 5, **more)]


def _transaction(number: int, shape: str, start: float) -> list[Event]:
    key, name = f"U{number}", f"{number} half"
    events: list[Event] = [(start, name, lambda _: half(key, start))]
    if shape == "committed":
        events.append((start + 1, f"{number} commit", lambda places: committed(key, places[name], start + 1)))
    if shape in {"committed", "rolled back"}:
        mark = f"number of {name}"
        events.append((start + 3, f"{number} op", lambda places: op([places[mark]], start + 3)))
    if shape == "given up":
        events.append((start + 6, f"{number} again half", lambda _: half(key, start + 6, 1)))
        events.append((start + 12, f"{number} gone", lambda _: given_up(key, start + 12)))
    return events


def _traces(number: int, shape: str, start: float) -> list[Event]:
    key, first = f"U{number}", f"{number} first"
    if shape == "sent again":  # consumed before and after the second copy, and reported as sent without a place
        sent = [_sent_trace(key, at, succeeded=True) for at in (start + 1, start + 41)]
        return [*sent, *_consumption(key, 0, start + 1, 0), *_consumption(key, 0, start + 42, 0)]
    if shape == "refused":
        return [_sent_trace(key, start + 1, succeeded=False)]
    if shape not in {"plain", "in order", "retried", "dead"}:
        return [_decision_trace(key, start + 2), _decision_trace(key, start + 8)]
    found: list[Event] = [
        (start + 1, "trace pub", lambda places: trace(pub(key, places[first], start), seconds=start + 1))
    ]
    code = 0 if shape == "plain" else 4
    found += _consumption(key, 0, start + 1, code)
    if shape != "plain":
        found += _consumption(key, 1, start + (10 if shape == "in order" else 31), 0)
    return found


def _sent_trace(key: str, at: float, *, succeeded: bool) -> Event:
    """Return the trace of a producer that does not know the place of its message."""
    return at, "trace sent", lambda _: trace(pub(key, None, at - 1, succeeded=succeeded), seconds=at)


def _decision_trace(key: str, at: float) -> Event:
    return at, "trace", lambda _: trace(decided(key, "UNKNOW", at), seconds=at)


def _consumption(key: str, attempt: int, start: float, code: int) -> list[Event]:
    """Return the traces of a consumption that takes eight seconds."""
    request, end = f"{key} {attempt} {start}", start + 8
    return [
        (start, "trace begin", lambda _: trace(begun(key, request, attempt, start), seconds=start)),
        (end, "trace end", lambda _: trace(ended(key, request, code, end), seconds=end)),
    ]


def rows(lake: Lake) -> list[str]:
    """Return the rows of `edges` in a fixed order."""
    if not DeltaTable.is_deltatable(lake.uri("edges")):
        return []
    found: list[dict[str, Any]] = DeltaTable(lake.uri("edges")).to_pyarrow_table().to_pylist()
    return sorted(repr(sorted(row.items())) for row in found)


def archive(which: Sequence[GrowingLake], lake: Lake) -> None:
    """Archive new messages of some of the stores, and let edges follow."""
    for store in which:
        if store.count:
            archive_new(store, lake)
    if DeltaTable.is_deltatable(lake.uri("messages")):
        follow_edges(lake)


def archive_new(store: GrowingLake, lake: Lake) -> None:
    """Archive a store where it has grown."""
    if store.count != _archived.get((lake.root, store.store)):
        archive_store(store.store, lake)
        _archived[lake.root, store.store] = store.count


_archived: dict[tuple[str, Path], int] = {}


@settings(max_examples=_EXAMPLES, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    shapes=st.lists(st.tuples(st.sampled_from(SHAPES), st.integers(0, 60), st.booleans()), min_size=1, max_size=6),
    data=st.data(),
)
def test_any_number_of_runs_gives_the_steps_of_one_run(
    shapes: list[tuple[str, int, bool]], data: st.DataObject
) -> None:
    count = sum(len(story(number, *shape)) for number, shape in enumerate(shapes))
    cuts = data.draw(st.lists(st.tuples(st.integers(0, count), st.sampled_from(["a", "b", "ab"])), max_size=4))
    assert_runs_give_the_same_steps(shapes, cuts)


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("end", [2, 3, 4])
def test_a_copy_from_before_is_known_when_a_message_is_sent_again(end: int) -> None:
    assert_runs_give_the_same_steps([("sent again", 5, False), ("committed", 15, False)], [(end, "ab")])


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("cuts", [[(4, "b")], [(6, "a")], [(8, "ab")], [(4, "b"), (10, "a"), (11, "b")]], ids=str)
def test_a_client_acted_on_the_same_copy_in_any_number_of_runs(cuts: list[tuple[int, str]]) -> None:
    assert_runs_give_the_same_steps([("sent again", 17, True), ("given up", 20, True)], cuts)


def assert_runs_give_the_same_steps(shapes: Sequence[tuple[str, int, bool]], cuts: Sequence[tuple[int, str]]) -> None:
    """Archive messages in several runs and in one, and compare the steps.

    Args:
        shapes: shape, begin in seconds, and whether it is traced, of each message.
        cuts: number of the events before each run, and the stores that it archives.
    """
    stories = [story(number, shape, start, traced) for number, (shape, start, traced) in enumerate(shapes)]
    events = sorted((event for found in stories for event in found), key=lambda event: event[0])
    with tempfile.TemporaryDirectory() as folder:
        stores = Stores(Path(folder))
        many, one = stores.main.lake, Lake(f"{folder}/one")
        runs: dict[str, list[GrowingLake]] = {
            "a": [stores.main],
            "b": [stores.other],
            "ab": [stores.main, stores.other],
        }
        done = 0
        for end, which in sorted(cuts):
            for event in events[done:end]:
                stores.write(event)
            done = max(done, end)
            archive(runs[which], many)
        for event in events[done:]:
            stores.write(event)
        archive(runs["ab"], many)
        archive(runs["ab"], one)
        assert rows(many) == rows(one)
