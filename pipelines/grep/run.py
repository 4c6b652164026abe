"""Runs all tasks of a search, and returns the matches in order and counts of what was read."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from commitlake.connectors.lake.packs.errors import PackNameError
from commitlake.connectors.lake.packs.names import parse_pack_name
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.grep.planning import SearchPlan
from commitlake.pipelines.grep.search import MAX_NAMED, GrepResult, Search, search_packs
from commitlake.schemas.counts import count_text


@dataclass
class Read:
    """Counts of what a search has read so far.

    Attributes:
        messages: number of messages whose bodies were read.
        bytes: size of these bodies, as sent by the producers.
        packs: number of packs that were read.
        tasks: number of finished tasks.
        expired: number of bodies whose packs were deleted by retention.
        unreadable: number of bodies that could not be read.
        reasons: why the first of these could not be read.
        is_cut: true if a limit has ended the search early.
    """

    messages: int = 0
    bytes: int = 0
    packs: int = 0
    tasks: int = 0
    expired: int = 0
    unreadable: int = 0
    reasons: list[str] = field(default_factory=list)
    is_cut: bool = False

    def add(self, found: GrepResult, expired_before: datetime.date | None) -> None:
        """Add the counts of a task."""
        self.messages += found.messages
        self.bytes += found.bytes
        self.packs += found.packs
        self.tasks += 1
        self.unreadable += found.unreadable
        self.reasons += found.reasons
        for pack, bodies in found.missing:
            if _is_expired(pack, expired_before):
                self.expired += bodies
                continue
            self.unreadable += bodies
            self.reasons.append(
                f"pack {pack}: expected the bodies of {count_text(bodies, 'message')}, found no such pack"
            )
        del self.reasons[MAX_NAMED:]


def _is_expired(pack: str, before: datetime.date | None) -> bool:
    try:
        date = parse_pack_name(pack).store_date
    except PackNameError:
        return False
    return before is not None and date is not None and date < before


def run_search(
    search: Search,
    plan: SearchPlan,
    runner: Runner,
    read: Read,
    *,
    limit: int = 0,
    expired_before: datetime.date | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Iterator[pa.RecordBatch]:
    """Run a search.

    Args:
        search: the search; its limit is one more than `limit`.
        plan: the packs to read.
        read: receives the counts.
        limit: maximum number of matches; 0 for no limit.
        expired_before: first date whose bodies are all kept; None if none has ever expired.
        advance: called with the size of the bodies of each finished task.

    Yields:
        The matches: task by task in the order of their oldest message, and by store time within a task.

    Raises:
        PackStoreError: if the place of all packs cannot be read.
        QueryError: if the table cannot be read.
    """
    waiting: dict[int, GrepResult] = {}
    following = given = 0
    for number, found in runner.run(partial(search_packs, search), plan.tasks, is_waiting=search.bodies.s3 is not None):
        waiting[number] = found
        advance(sum(part.bytes for part in plan.tasks[number]))
        while following in waiting:
            done = waiting.pop(following)
            following += 1
            read.add(done, expired_before)
            rows = done.rows
            if limit and given + rows.num_rows > limit:
                read.is_cut = True
                rows = rows.slice(0, limit - given)
            given += rows.num_rows
            yield from rows.to_batches()
            if read.is_cut:
                return
