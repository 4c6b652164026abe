"""The table `erasures`: all erasures and their progress.

begun      unfinished: tables or packs may still have data of the messages
erased     waiting: older versions of tables and unused files have data until the retention is over
purged     no data is left

Facts for evidence are counts and checksums of these rows, but no keys.
"""

from __future__ import annotations

import datetime
import json
import os
import secrets
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import to_utc_times
from commitlake.connectors.lake.committer import append_rows, commit_with_transaction
from commitlake.connectors.lake.erasures import (
    APPLICATION_ID,
    newest_erasure_number,
    open_erasures,
    parse_erased_messages,
)
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.pipelines.masking.copies_of_erased import NO_TEXTS, CopyTexts, ensure_hash_key, read_later_copies
from commitlake.pipelines.masking.erased_rows import erase_rows
from commitlake.pipelines.masking.erasure_rows import (
    ErasureWriter,
    make_erasure_rows,
    newest_row_by_message,
    to_erasures_schema,
)
from commitlake.schemas.errors import ConcurrentRunError, UsageError
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.tables.erasures import MESSAGE_EVENTS, ErasureEvent
from commitlake.schemas.times import EPOCH, format_iso_time

_MAX_TRIES = 20
_LEDGER = "the table 'erasures'"
_READ = ["number", "erasure_id", "event", "reason", "detail"]
_MARGIN = datetime.timedelta(days=1)
"""Added to the retention, so that uncommitted files of runs that began before the erasure are old enough to delete."""
_CHECKSUMS = ("row_after", "lake_after")  # a sum of hashes before the erasure would confirm a guess of contents


@dataclass(frozen=True, slots=True)
class ErasureState:
    """State of one erasure, computed from its rows in `erasures`.

    Attributes:
        number: number, from 1.
        erasure_id: its id.
        begun_at: UTC.
        reason: reason given by the user.
        messages: number of messages.
        retention: time for which older versions of tables are kept.
        erased_at: time at which all tables and packs were last done; None if not yet.
        purged_at: time at which the last data was deleted; None if not yet.
        counts: counts of the work, by place.
    """

    number: int
    erasure_id: str
    begun_at: datetime.datetime
    reason: str
    messages: int
    retention: datetime.timedelta
    erased_at: datetime.datetime | None
    purged_at: datetime.datetime | None
    counts: Mapping[str, Any]

    @property
    def is_unfinished(self) -> bool:
        """True if tables or packs may still have data of this erasure."""
        return self.erased_at is None

    @property
    def purge_due_at(self) -> datetime.datetime | None:
        """Time from which old table versions of the erasure may be deleted; None if unfinished or already deleted."""
        return None if self.erased_at is None or self.purged_at else self.erased_at + self.retention + _MARGIN


def make_erasure_writer(parser_version: str) -> ErasureWriter:
    """Return the identity of this process and the current time, as written to new rows of `erasures`."""
    return ErasureWriter(time.time_ns() // 1000, f"{socket.gethostname()} {os.getpid()}", parser_version)


def read_erasure_rows(lake: Lake) -> pa.Table:
    """Read all rows of `erasures`; none if nothing was ever erased."""
    table = open_erasures(lake)
    return (
        to_erasures_schema(pa.table({"number": pa.array([], pa.int64())})) if table is None else _read_all_rows(table)
    )


def newest_erasure_rows(rows: pa.Table) -> pa.Table:
    """Return the newest row of `erasures` for each erased message."""
    rows = rows.filter(pc.is_in(rows.column("event"), pa.array([str(event) for event in MESSAGE_EVENTS])))
    return newest_row_by_message(rows)


def _read_all_rows(table: Any) -> pa.Table:
    return to_erasures_schema(table.to_pyarrow_table())


def read_erasure_states(lake: Lake) -> list[ErasureState]:
    """Read the state of each erasure of a lake, oldest first.

    Raises:
        UsageError: if this version cannot read a row.
    """
    rows = read_erasure_rows(lake)
    others = pa.array([*map(str, MESSAGE_EVENTS), str(ErasureEvent.LATER)])
    events = rows.filter(pc.invert(pc.is_in(rows.column("event"), others)))
    messages = rows.filter(pc.equal(rows.column("event"), str(ErasureEvent.MESSAGE)))
    counts = messages.group_by("number").aggregate([([], "count_all")]).to_pylist()
    counted = {row["number"]: row["count_all"] for row in counts}
    told = events.select(_READ).append_column("at_us", events.column("at").cast(pa.int64())).sort_by("at_us")
    found: dict[int, dict[str, list[dict[str, Any]]]] = {}
    for row, at in zip(told.to_pylist(), to_utc_times(told.column("at_us")), strict=True):
        if at is None or row["number"] is None or row["erasure_id"] is None:
            raise UsageError(
                f"{_LEDGER}: the event {row['event']!a} lacks its number, erasure_id or time: expected rows as 'erase' "
                "writes them"
            )
        found.setdefault(row["number"], {}).setdefault(row["event"], []).append(row | {"at": at})
    return [_to_erasure_state(number, found[number], counted.get(number, 0)) for number in sorted(found)]


def _to_erasure_state(erasure_number: int, events: Mapping[str, list[dict[str, Any]]], messages: int) -> ErasureState:
    begun, erased, purged = (next(iter(events.get(name, ())), None) for name in ("begun", "erased", "purged"))
    # If a repair undid an erasure and it was done again, the retention starts again: the newest rows count.
    newest = events["erased"][-1] if erased else None
    purged = next((row for row in events.get("purged", ()) if newest and row["at"] >= newest["at"]), None)
    try:
        assert begun is not None
        detail = json.loads(begun["detail"])
        retention = datetime.timedelta(seconds=float(detail["retention_s"]))
        counts = json.loads(erased["detail"] or "{}") if erased else {}
        state = ErasureState(
            erasure_number,
            begun["erasure_id"],
            begun["at"],
            begun["reason"] or "",
            messages,
            retention,
            newest["at"] if newest else None,
            purged["at"] if purged else None,
            dict(counts),
        )
        # A forged retention that is negative would allow a purge at once.
        assert state.purge_due_at is None or state.purge_due_at > state.begun_at
    except (AssertionError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise UsageError(
            f"{_LEDGER}: the rows of erasure {erasure_number} are not as 'erase' writes them, and cannot be read: "
            f"{error!r}"
        ) from None
    return state


def begin_erasure(
    lake: Lake,
    rows: pa.Table,
    reason: str,
    retention: datetime.timedelta,
    parser_version: str,
    texts: CopyTexts = NO_TEXTS,
    *,
    keeps_later_copies: bool = False,
) -> ErasureState:
    """Record a new erasure in one commit: its messages, and hashes by which later copies of them are recognised.

    Args:
        rows: rows of `messages` before the erasure, each column in one chunk.
        texts: texts that later copies have.
        keeps_later_copies: True to archive later copies as they are, also if an earlier erasure has these texts.
        reason: reason given by the user.
        retention: time for which older versions of tables are kept.
        parser_version: version of CommitLake.

    Raises:
        ConcurrentRunError: if other erasures begin first on every attempt.
    """
    erasure_id = secrets.token_hex(16)
    for _ in range(_MAX_TRIES):
        # The commit below only succeeds if this is still the next number.
        number = newest_erasure_number(open_erasures(lake)) + 1
        by = make_erasure_writer(parser_version)
        # Read again for each attempt: the erasure that was first may have made the key of the hashes.
        copies = ensure_hash_key(read_later_copies(lake))
        detail = {"retention_s": retention.total_seconds(), "copies_key": copies.key.hex()}
        table = pa.concat_tables([
            _erasure_event_row(number, erasure_id, ErasureEvent.BEGUN, detail, by, reason),
            _message_rows(rows, number, erasure_id, by),
            _later_copy_rows(number, erasure_id, copies.iterate_detail_json(texts,
            are_copies_kept=keeps_later_copies), by),
        ])  # fmt: skip
        file = write_plain_file(table, lake, "erasures", f"part-{secrets.token_hex(16)}.zstd.parquet")
        before = number - 1 or None
        if commit_with_transaction(lake, "erasures", [file], APPLICATION_ID, (before, number)):
            at = EPOCH + datetime.timedelta(microseconds=by.at)
            return ErasureState(number, erasure_id, at, reason, rows.num_rows, retention, None, None, {})
    raise ConcurrentRunError(
        f"{_LEDGER}: another erasure began first at each of {_MAX_TRIES} attempts. Run the command again"
    )


def _message_rows(rows: pa.Table, erasure_number: int, erasure_id: str, writer: ErasureWriter) -> pa.Table:
    count = rows.num_rows
    if not count:
        return to_erasures_schema(pa.table({"number": pa.array([], pa.int64())}))
    named = rows.select(["broker", "physical_offset"]).append_column("erasure_id", pa.array([erasure_id] * count))
    places = parse_erased_messages(
        named.append_column("number", pa.array([erasure_number] * count, pa.int64())), erasure_number
    )
    after, hits = erase_rows(rows, places)
    assert len(hits) == count, (
        f"{format_count(count, 'message was', 'messages were')} selected, {len(hits)} of them can be erased"
    )
    return make_erasure_rows(rows, after, [erasure_id] * count, [erasure_number] * count, ErasureEvent.MESSAGE, writer)


def _later_copy_rows(erasure_number: int, erasure_id: str, details: Iterable[str], writer: ErasureWriter) -> pa.Table:
    found = list(details)
    values = {
        "number": pa.array([erasure_number] * len(found), pa.int64()),
        "erasure_id": pa.array([erasure_id] * len(found), pa.string()),
        "event": pa.array([str(ErasureEvent.LATER)] * len(found), pa.string()),
        "at": pa.array(np.full(len(found), writer.at, np.int64)),
        "owner": pa.array([writer.owner] * len(found), pa.string()),
        "detail": pa.array(found, pa.string()),
        "parser_version": pa.array([writer.parser_version] * len(found), pa.string()),
    }
    return to_erasures_schema(pa.table(values))


def add_erasure_event(
    lake: Lake, state: ErasureState, event: ErasureEvent, detail: Mapping[str, Any], parser_version: str
) -> None:
    """Record an event of an erasure, such as its completion; recording it twice does no harm."""
    row = _erasure_event_row(state.number, state.erasure_id, event, detail, make_erasure_writer(parser_version), None)
    append_rows(lake, "erasures", row)


def _erasure_event_row(
    erasure_number: int,
    erasure_id: str,
    event: ErasureEvent,
    detail: Mapping[str, Any],
    writer: ErasureWriter,
    reason: str | None,
) -> pa.Table:
    values = {
        "number": pa.array([erasure_number], pa.int64()),
        "erasure_id": pa.array([erasure_id]),
        "event": pa.array([str(event)]),
        "at": pa.array(np.array([writer.at], np.int64)),
        "reason": pa.array([reason], pa.string()),
        "owner": pa.array([writer.owner]),
        "detail": pa.array([json.dumps(detail, sort_keys=True)]),
        "parser_version": pa.array([writer.parser_version]),
    }
    return to_erasures_schema(pa.table(values))


def collect_erasure_evidence(lake: Lake, states: Sequence[ErasureState]) -> Iterator[dict[str, Any]]:
    """Yield the data to be signed as evidence for each erasure, oldest first, up to the first unfinished one.

    Args:
        states: states of erasures, the oldest first.
    """
    for state in states:
        # Evidence is a chain in the order of numbers, so nothing after an unfinished erasure is signed yet.
        if state.erased_at is None:
            return
        rows = read_erasure_rows(lake)
        is_own = pc.and_(
            pc.equal(rows.column("number"), state.number), pc.equal(rows.column("event"), str(ErasureEvent.MESSAGE))
        )
        own = rows.filter(is_own)
        sums = {name: _hash_sum_text(own.column(name)) for name in _CHECKSUMS}
        yield {
            "number": state.number,
            "erasure_id": state.erasure_id,
            "reason": state.reason,
            "begun_at": format_iso_time(state.begun_at, "milliseconds"),
            "erased_at": format_iso_time(state.erased_at, "milliseconds"),
            "messages": state.messages,
            "messages_version": lake.table("messages").version(),
            "counts": dict(state.counts),
            "checksums": sums,
        }


def _hash_sum_text(hashes: pa.ChunkedArray) -> str | None:
    """Return the sum of row hashes as 16 hexadecimal digits; None if a hash is null, as after a repair."""
    if hashes.null_count:
        return None
    return f"{int(hashes.to_numpy().view(np.uint64).sum(dtype=np.uint64)):016x}"


def collect_purge_evidence(lake: Lake, states: Sequence[ErasureState]) -> Iterator[dict[str, Any]]:  # noqa: ARG001 (as above)
    """Yield the data to be signed as evidence for each purge, oldest first, up to the first erasure not purged yet."""
    for state in states:
        if state.purged_at is None:
            return
        purged_at = format_iso_time(state.purged_at, "milliseconds")
        yield {"number": state.number, "erasure_id": state.erasure_id, "purged_at": purged_at}
