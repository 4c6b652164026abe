"""Messages in the retry stores of JMQ stores: those that wait for another delivery, and dead letters.

A retry whose time has not come is not behind, as with delayed messages. A lake has the state of the last archive run.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from commitlake.connectors.formats.engine.stores import Store
from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import text_literal
from commitlake.pipelines.lag.counting import Behind
from commitlake.pipelines.lag.measure import Choice, Lag
from commitlake.pipelines.lag.offsets import Moment, OffsetAt
from commitlake.pipelines.lag.waiting import waiting_row
from commitlake.pipelines.snapshot.progress import OffsetKind, OffsetOwner
from commitlake.schemas.counts import count_text
from commitlake.schemas.tables.edge_kinds import AbsentReason, EdgeKind
from commitlake.schemas.times import epoch_ms, plain_text

KIND = "retry_store"


class Entry(NamedTuple):
    """A message in a retry store.

    Attributes:
        group: The application that failed to consume it.
        topic: Topic of the message.
        queue_id: Queue of the message.
        is_dead: True for a dead letter.
        due: Time of the next delivery; None if not known.
    """

    group: str
    topic: str
    queue_id: int
    is_dead: bool
    due: datetime.datetime | None


@dataclass
class _Counts:
    late: int = 0
    waiting: int = 0
    dead: int = 0
    first: datetime.datetime | None = None
    following: datetime.datetime | None = None

    def add(self, entry: Entry, at: datetime.datetime) -> None:
        if entry.is_dead:
            self.dead += 1
        elif entry.due is not None and entry.due <= at:
            self.late += 1
            self.first = entry.due if self.first is None else min(self.first, entry.due)
        else:
            self.waiting += 1
            if entry.due is not None:
                self.following = entry.due if self.following is None else min(self.following, entry.due)

    def note(self) -> str:
        following = "" if self.following is None else f", the next is due {plain_text(self.following)}"
        dead = f"; {count_text(self.dead, 'dead letter')}" if self.dead else ""
        return f"in the retry store; {self.waiting} more wait{following}{dead}"


def entries_of_store(store: Store) -> tuple[list[Entry], list[str]]:
    """Return the content of a store's retry store, and sentences on problems.

    Raises:
        UnsafeFileError: A file of it is a link or not regular.
    """
    if not store.format.has_retry_store:
        return [], []
    found = store.format.read_retry_store(store)
    names = ["consumer_group", "topic", "queue_id", "is_dead", "due_timestamp"]
    return [Entry(*row.values()) for row in found.rows.select(names).to_pylist()], list(found.problems)


def entries_of_lake(lake: Lake, broker: str) -> list[Entry]:
    """Return the content of a store's retry store as of the last archive run.

    Raises:
        QueryError: The table cannot be read.
    """
    if not lake.has_log("consumptions"):  # only JMQ's stores have retry stores
        return []
    try:
        table = lake.table("edges")
    except NoTableError:
        return []
    sql = (
        "SELECT consumer_group, from_topic, from_queue_id, kind, due_timestamp FROM edges "
        f"WHERE absent_reason = {text_literal(AbsentReason.RETRY_STORE)} AND from_broker = {text_literal(broker)}"
    )
    rows = run_sql(table, "edges", sql).read_all().to_pylist()
    return [Entry(group, topic, queue_id, kind == EdgeKind.DEAD, due)
            for group, topic, queue_id, kind, due in (row.values() for row in rows)]  # fmt: skip


def rows_of_entries(moment: Moment, entries: Iterable[Entry], choice: Choice) -> Iterator[Lag]:
    """Yield a row for each group and queue with messages in a retry store.

    Args:
        moment: Offsets of the store's groups.
        entries: Content of the retry store.
    """
    counts: dict[OffsetOwner, _Counts] = {}
    for entry in entries:
        position = OffsetOwner(OffsetKind.GROUP, entry.group, entry.topic, entry.queue_id)
        if choice.takes(position):
            counts.setdefault(position, _Counts()).add(entry, moment.at)
    for position, found in sorted(counts.items()):
        late = Behind(found.late)
        due = None if found.first is None else epoch_ms(found.first)
        offset = moment.offsets.get(position) or OffsetAt(0, 0)
        yield waiting_row(
            moment, KIND, position, offset, (late, late), (due, due), (found.note(),), is_complete=True
        )  # fmt: skip
