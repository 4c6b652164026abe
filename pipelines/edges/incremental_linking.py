"""Links new rows of `messages` with each other, with open steps, and with records of earlier runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import to_boolean_array, to_numpy_numbers
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.edges.client_actions import ENTRIES, Action
from commitlake.pipelines.edges.edge_rows import (
    find_record_edges,
    positions_to_read,
    relinking_needed_mask,
    select_rows,
    steps_to_entries,
    unfinished_messages,
)
from commitlake.pipelines.edges.key_matching import Column, encode_key_columns, match_same_key
from commitlake.pipelines.edges.lake_spans import LINK_US, BrokerSpans
from commitlake.pipelines.edges.message_reader import (
    LinkInputs,
    distinct_positions,
    ordinary_records_where,
    rows_to_records,
)
from commitlake.pipelines.edges.row_lookup import (
    find_half_positions,
    find_positions_by_key,
    read_rows_at_positions,
    refer_to_positions,
)
from commitlake.pipelines.edges.step_records import MEMBERS, TIME, DelayCache
from commitlake.pipelines.edges.steps import STEPS, TO, WAITING, close_overdue_steps, open_step_mask
from commitlake.schemas.tables.edges import AbsentReason, EdgeKind

_PLACE = ("broker", "physical_offset")
_END_TIMES = ("to_timestamp", "event_timestamp", "from_timestamp")
_FINAL = (AbsentReason.AMBIGUOUS, AbsentReason.REFUSED)


@dataclass(frozen=True)
class LinkedSteps:
    """Edges between records that were found in one increment of new rows.

    Attributes:
        closed: steps that no later run changes.
        open: steps that a later run may complete; they replace all steps that were open before.
    """

    closed: pa.Table = field(default_factory=STEPS.empty_table)
    open: pa.Table = field(default_factory=STEPS.empty_table)


class RowLinker:
    """Links new rows to each other and to earlier records of the lake, one increment at a time.

    Args:
        lake: the lake in which members of earlier runs are looked up.
        erased_places: table of `PLACES` of erased messages, which no step may have as an end.
        delay_levels: delay of each level, by broker.
    """

    def __init__(self, lake: Lake, erased_places: pa.Table, delay_levels: DelayCache) -> None:
        self._lake = lake
        self._delay_levels = delay_levels
        self._spans = BrokerSpans()
        self._erased = erased_places

    def link_increment(
        self, new_rows: LinkInputs, open_steps: pa.Table, spans: BrokerSpans, *, has_linked_messages: bool
    ) -> LinkedSteps:
        """Find the edges between new records, and complete earlier edges that lacked a record at one end.

        Args:
            new_rows: contents of rows of `messages` that were not linked before.
            open_steps: steps that were open before.
            spans: extent of the lake, with the increments, and what is linked of it.
            has_linked_messages: True if rows of `messages` were linked before, which may be ends of new steps.
        """
        if not any(rows.num_rows for rows in (open_steps, new_rows.members, new_rows.entries, new_rows.ops)):
            return LinkedSteps()  # as in most increments: ordinary messages belong to no step
        cancels = new_rows.members.column("cancels").combine_chunks().drop_null()
        self._spans = spans
        touched = relinking_needed_mask(
            open_steps, _keys_of_open_steps(new_rows, open_steps), new_rows.ops, cancels, spans
        )
        again, left = select_rows(open_steps, touched), select_rows(open_steps, ~touched)
        definers = pa.concat_tables([
            distinct_positions(new_rows.members, *_PLACE),
            distinct_positions(new_rows.entries, *_PLACE),
        ])  # fmt: skip
        entries = pa.concat_tables([new_rows.entries, self._add_store_times(steps_to_entries(again))])
        whole = [
            new_rows.members,
            self._read_records_at(positions_to_read(again)),
            self._ordinary_records_to_link(new_rows, again),
        ]
        members = [*whole, unfinished_messages(again)]
        steps = self._link_new_records(members, entries, new_rows.ops, definers, again)
        # The new rows were linked among themselves first. Only what they lack is read from the lake, and then all is
        # linked again.
        if has_linked_messages:
            actions = _entries_linked_by_key(entries)
            more_keys = [*_keys_of_client_copies(new_rows), *actions.column("unique_key").chunks]
            since = _earliest_link_time(actions, ("event_timestamp", "store_timestamp"))
            known = pa.concat_tables([distinct_positions(table, *_PLACE) for table in whole])
            found = self._read_earlier_records(steps, pa.chunked_array(more_keys, pa.string()), since, known)
            if found.num_rows:
                steps = self._link_new_records([found, *members], entries, new_rows.ops, definers, again)
        steps = pa.concat_tables([close_overdue_steps(steps, self._spans), close_overdue_steps(left, self._spans)])
        steps = self._drop_erased(steps)
        chosen = open_step_mask(steps)
        return LinkedSteps(select_rows(steps, ~chosen), select_rows(steps, chosen).combine_chunks())

    def _link_new_records(
        self,
        members: list[pa.Table],
        entries: pa.Table,
        op_records: pa.Table,
        definer_positions: pa.Table,
        relinked_steps: pa.Table,
    ) -> pa.Table:
        """Return the edges that new records define, and those that lacked an end before.

        All other steps are in `edges` already.
        """
        steps = find_record_edges(_distinct_records(pa.concat_tables(members)), entries, op_records, self._spans)
        is_new = refer_to_positions(steps, ("definer_broker", "definer_offset"), definer_positions).to_numpy(
            zero_copy_only=False
        )
        return steps.filter(to_boolean_array(is_new | _relinked_step_mask(steps, relinked_steps)))

    def _ordinary_records_to_link(self, new_rows: LinkInputs, relinked_steps: pa.Table) -> pa.Table:
        """Return the new rows of ordinary messages to which an edge may lead, by unique key or log position."""
        keys = pa.chunked_array([
            new_rows.members.column("unique_key").combine_chunks(),
            new_rows.entries.column("unique_key").combine_chunks(),
            pc.coalesce(relinked_steps.column("from_key"), relinked_steps.column("to_key")).combine_chunks(),
        ], pa.string())  # fmt: skip
        wanted = pc.unique(keys.drop_null())
        origins = pa.concat_tables([
            distinct_positions(new_rows.members, "replay_broker", "replay_offset"),
            distinct_positions(relinked_steps, "from_broker", "from_physical_offset"),
        ])  # fmt: skip

        def is_needed(rows: pa.Table) -> Array:
            by_key: Array = pc.is_in(rows.column("unique_key"), wanted).to_numpy()
            if origins.num_rows:
                by_key = by_key | refer_to_positions(rows, _PLACE, origins).to_numpy(zero_copy_only=False)
            return by_key

        return ordinary_records_where(new_rows.plain, is_needed)

    def _read_records_at(self, positions: pa.Table) -> pa.Table:
        if not positions.num_rows:
            return MEMBERS.empty_table()
        return rows_to_records(read_rows_at_positions(self._lake, positions), self._delay_levels)

    def _add_store_times(self, entries: pa.Table) -> pa.Table:
        """Return the trace entries with the store times of their trace messages, where linking needs these."""
        is_by_time = pc.and_(
            pc.equal(entries.column("action"), str(Action.PUB)), pc.is_null(entries.column("sent_offset"))
        )
        if not is_by_time.combine_chunks().true_count:
            return entries
        rows = read_rows_at_positions(self._lake, distinct_positions(entries.filter(is_by_time), *_PLACE))
        at, _ = match_same_key(
            *encode_key_columns(*([table.column(name) for name in _PLACE] for table in (entries, rows)))
        )
        times = rows.column("store_timestamp").cast(TIME).take(pa.array(at, mask=at < 0))
        times = pc.coalesce(times, entries.column("event_timestamp"))  # if the trace is no longer in the lake
        return entries.set_column(ENTRIES.get_field_index("store_timestamp"), ENTRIES.field("store_timestamp"), times)

    def _read_earlier_records(
        self, steps: pa.Table, extra_keys: pa.ChunkedArray, since_us: int, known_positions: pa.Table
    ) -> pa.Table:
        """Read earlier records from the lake that may be missing ends of edges, or have one of `extra_keys`.

        Args:
            since_us: store time of the oldest records with `extra_keys` that are needed, microseconds since 1970.
            known_positions: places of records that need not be read, as a table of `PLACES`.
        """
        lacking = steps.filter(pc.is_valid(steps.column("absent_end")))
        is_final = pc.is_in(lacking.column("absent_reason"), pa.array(list(map(str, _FINAL))))
        waits = pc.and_(
            pc.is_in(lacking.column("kind"), pa.array([str(kind) for kind in WAITING])),
            pc.equal(lacking.column("absent_end"), TO),
        )
        lacking = lacking.filter(pc.invert(pc.or_(is_final, waits))).combine_chunks()
        extra_keys = extra_keys.drop_null()
        if not lacking.num_rows and not len(extra_keys):
            return MEMBERS.empty_table()
        times = [since_us] * bool(len(extra_keys)) + [_earliest_link_time(lacking, _END_TIMES)] * bool(lacking.num_rows)
        since_us = min(*times, self._spans.last_us - LINK_US)  # a client's clock may be ahead by any time
        found = [self._read_records_at(distinct_positions(lacking, "from_broker", "from_physical_offset"))]
        halves = lacking.filter(pc.equal(lacking.column("kind"), str(EdgeKind.FINISHED)))
        keys = pc.coalesce(lacking.column("from_key"), lacking.column("to_key")).combine_chunks()
        if halves.num_rows:
            names = ["from_broker", "from_queue_id", "from_queue_offset"]
            numbers = halves.select(names).rename_columns(["broker", "queue_id", "queue_offset"])
            found.append(self._read_records_at(find_half_positions(self._lake, numbers, since_us)))
            keys = pa.concat_arrays([keys, found[-1].column("unique_key").combine_chunks()])
        keys = pa.concat_arrays([keys, extra_keys.combine_chunks()])
        places = find_positions_by_key(self._lake, keys, since_us)
        found.append(
            self._read_records_at(places.filter(pc.invert(refer_to_positions(places, _PLACE, known_positions))))
        )
        return _distinct_records(pa.concat_tables(found))

    def _drop_erased(self, steps: pa.Table) -> pa.Table:
        if not self._erased.num_rows:
            return steps
        for end in ("from", "to", "evidence"):
            names = (f"{end}_broker", f"{end}_physical_offset")
            steps = steps.filter(pc.invert(refer_to_positions(steps, names, self._erased)))
        return steps


def _keys_of_client_copies(new_rows: LinkInputs) -> list[pa.Array]:
    """Return the unique keys of copies made by clients, which only the key links to their originals."""
    is_by_client = pc.fill_null(new_rows.members.column("by_client"), False)
    return list(new_rows.members.filter(is_by_client).column("unique_key").chunks)


def _entries_linked_by_key(entries: pa.Table) -> pa.Table:
    """Return the trace entries that can be linked to a record only by unique key and time.

    Linking them needs all earlier records with their keys.

    The message of an entry may be among the new rows, and a copy of it, such as one that an application sent before, in
    an earlier run.
    """
    actions = entries.column("action")
    has_place = pc.and_(pc.equal(actions, str(Action.PUB)), pc.is_valid(entries.column("sent_offset")))
    return entries.filter(pc.invert(pc.or_(has_place, pc.equal(actions, str(Action.LOGGED)))))


def _relinked_step_mask(steps: pa.Table, relinked_steps: pa.Table) -> Array:
    """Return a mask of the edges that are among `relinked_steps`, compared by kind and defining record."""
    left, right = encode_key_columns(_step_key_columns(steps), _step_key_columns(relinked_steps))
    found: Array = (left >= 0) & np.isin(left, right)
    return found


def _step_key_columns(steps: pa.Table) -> list[Column]:
    columns = [steps.column(name) for name in ("kind", "definer_broker", "definer_offset")]
    return [*columns, pc.fill_null(steps.column("evidence_entry"), -1)]


def _keys_of_open_steps(new_rows: LinkInputs, open_steps: pa.Table) -> pa.Array:
    """Return the unique keys that new rows have in common with edges that lack a record at one end."""
    open_keys = pc.unique(pc.coalesce(open_steps.column("from_key"), open_steps.column("to_key")).drop_null())
    columns = [new_rows.members.column("unique_key"), new_rows.entries.column("unique_key")]
    if new_rows.plain is not None:
        columns.append(new_rows.plain.column("unique_key"))
    found = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())
    return pc.unique(found.filter(pc.is_in(found, open_keys)))


def _distinct_records(members: pa.Table) -> pa.Table:
    """Return one record for each log position: the first one, which has the most complete data.

    A record that was read has more than one made of an open step, except whether it was committed.
    """
    members = members.combine_chunks()
    if not members.num_rows:
        return members
    numbered = members.select([*_PLACE, "is_committed"]).append_column("row", pa.array(np.arange(members.num_rows)))
    distinct = numbered.group_by(_PLACE).aggregate([("row", "min"), ("is_committed", "any")]).sort_by("row_min")
    if distinct.num_rows == members.num_rows:
        return members
    members = members.take(distinct.column("row_min"))
    place = MEMBERS.get_field_index("is_committed")
    return members.set_column(place, MEMBERS.field(place), distinct.column("is_committed_any")).combine_chunks()


def _earliest_link_time(rows: pa.Table, names: Sequence[str]) -> int:
    """Return the earliest time of the rows minus the `LINK_DAYS` within which records are linked; 0 without times.

    A row's time is the first of the columns `names` that has one.
    """
    known = pc.coalesce(*(rows.column(name) for name in names)).drop_null()
    return int(to_numpy_numbers(known).min()) - LINK_US if len(known) else 0
