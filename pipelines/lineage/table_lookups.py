"""Look-ups for a message history: locations of a key's messages, their rows in `messages`, rows of `edges` of nodes.

Each query uses columns for which files, row groups and pages have bounds (`node_hash`, `physical_offset`,
`store_date`), so that DataFusion opens only what may match. If `message_keys` cannot answer, all of `messages` is
searched.
"""

from __future__ import annotations

import datetime
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import to_boolean_array, to_numpy_numbers, to_string_array
from commitlake.connectors.lake.archive_commits import read_last_commit
from commitlake.connectors.lake.delta_log.versions import VersionsError
from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import date_literal, id_conditions, in_condition, selection_conditions, text_literal
from commitlake.pipelines.lineage.message_history import Question
from commitlake.pipelines.message_keys.lookup import find_indexed_message_places
from commitlake.pipelines.message_keys.progress import BUSINESS_KEY, UNIQUE_KEY, open_newest_messages
from commitlake.pipelines.tps.result_rows import to_row_dicts
from commitlake.schemas.layouts.rocketmq.topics import Kind, kind_of
from commitlake.schemas.selection import Selection
from commitlake.schemas.times import epoch_us

Place = tuple[str, int]
"""Broker and physical offset."""
Row = Mapping[str, Any]
COLUMNS = (
    "broker", "physical_offset", "topic", "queue_id", "queue_offset", "msg_id", "unique_key", "keys", "tags", "kind",
    "born_timestamp", "store_timestamp", "born_host", "store_host", "reconsume_times", "body_size", "body_crc",
    "body_codec", "body_ref", "properties", "origin_topic", "producer_group",
)  # fmt: skip
_LATER = ("format", "origin_topic", "producer_group", "body_ref")
"""Columns that tables of earlier versions may lack."""
_PER_QUESTION = 2_000
"""Number of values in one SQL query, whose planning time grows with them."""


@dataclass(frozen=True, slots=True)
class Matches:
    """Rows of `messages` with a requested key, id or offset.

    Attributes:
        rows: Rows of `messages`.
        left_out: Number of further matching records.
        traces: Number of trace records that name the key, which are not counted.
    """

    rows: Sequence[Row]
    left_out: int = 0
    traces: int = 0


class LineageTables:
    """Tables of a lake from which message histories are read, opened once.

    Args:
        lake: The lake.

    Raises:
        LogDamagedError: The log of `messages` is damaged.
    """

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.messages = open_newest_messages(lake)
        try:
            self.edges: DeltaTable | None = lake.table("edges")
        except NoTableError:
            self.edges = None
        known = {field.name for field in self.messages.schema().fields}
        self._columns = ", ".join(
            name if name in known or name not in _LATER else f"NULL AS {name}" for name in COLUMNS
        )

    def find_matches(self, question: Question) -> Matches:
        """Return the records with the requested key, id or offset."""
        if question.place is not None:
            broker, offset = question.place
            where = f"broker = {text_literal(broker)} AND physical_offset = {offset}"
            return Matches(self._select_rows([where, *time_conditions(question)]))
        if question.message_id is not None:
            return self._match_message_id(question.message_id, question)
        return self._match_keys(question.key or "", BUSINESS_KEY, question)

    def find_copies(self, unique_key: str, question: Question) -> Sequence[Row]:
        """Return all records with a unique key, within the time range of a query."""
        return self._match_keys(unique_key, UNIQUE_KEY, question).rows

    def _match_message_id(self, message_id: str, question: Question) -> Matches:
        by_offset, *_ = id_conditions(message_id)
        if by_offset.startswith("physical_offset"):
            rows = self._select_rows([by_offset, *time_conditions(question)])
            if rows:
                return Matches(rows)
        return self._match_keys(message_id, UNIQUE_KEY, question)

    def _match_keys(self, key: str, key_kind: str, question: Question) -> Matches:
        places = self._find_key_places(key, key_kind)
        if places is None:
            return self._scan_messages(key, key_kind, question)
        places = keep_places_in_time_range(places, question)
        is_trace = _are_trace_topics(places.column("topic"))
        traces = pc.sum(is_trace).as_py() or 0
        wanted = places.filter(pc.invert(is_trace)) if traces < places.num_rows else places
        rows = self.read_message_rows(newest_message_places(wanted, question.limit))
        has_key = [row for row in rows if key in (row["keys"] or ())] if key_kind == BUSINESS_KEY else rows
        return Matches(has_key, max(0, wanted.num_rows - question.limit), traces)

    def _find_key_places(self, key: str, key_kind: str) -> pa.Table | None:
        """Return the distinct log positions of a key's messages; None if `message_keys` cannot be read."""
        try:
            return find_indexed_message_places(self.lake, [key], key_kind)
        except VersionsError:
            return None

    def _scan_messages(self, key: str, key_kind: str, question: Question) -> Matches:
        text = text_literal(key)
        has_key = f"array_contains(keys, {text})" if key_kind == BUSINESS_KEY else f"unique_key = {text}"
        where = [has_key, f"kind <> {text_literal(Kind.TRACE)}", *time_conditions(question)]
        sql = f"SELECT count(*) AS n FROM messages WHERE {' AND '.join(where)}"
        count = int(run_sql(self.messages, "messages", sql).read_all().column("n")[0].as_py())
        more = f" ORDER BY store_timestamp DESC, physical_offset DESC LIMIT {question.limit}"
        return Matches(self._select_rows(where, more), max(0, count - question.limit))

    def read_message_rows(self, message_places: Mapping[Place, datetime.datetime | None]) -> list[Row]:
        """Return the rows of `messages` at the given log positions.

        Args:
            message_places: Places, with the store times of the records; None if not known.
        """
        found: list[Row] = []
        listed = sorted(
            message_places, key=lambda place: (message_places[place] is None, message_places[place] or _FIRST, place)
        )
        for start in range(0, len(listed), _PER_QUESTION):
            part = listed[start : start + _PER_QUESTION]
            where = [in_condition("physical_offset", (str(offset) for offset in sorted({place[1] for place in part})))]
            days = {
                None if (at := message_places[place]) is None else at.astimezone(datetime.UTC).date() for place in part
            }
            if None not in days:
                where.append(in_condition("store_date", (date_literal(day) for day in sorted(filter(None, days)))))
            found += [
                row for row in self._select_rows(where) if (row["broker"], row["physical_offset"]) in message_places
            ]
        return found

    def read_rows_with_property(
        self, name: str, values: Collection[str], start: datetime.datetime, end: datetime.datetime, limit: int
    ) -> list[Row]:
        """Return the first rows in a time range whose property has one of the values, at most `limit` + 1 rows."""
        texts = ", ".join(text_literal(value) for value in sorted(values))
        where = [
            f"properties[{text_literal(name)}] IN ({texts})",
            f"kind <> {text_literal(Kind.TRACE)}",
            *selection_conditions(Selection(start=start, end=end)),
        ]
        return self._select_rows(where, f" ORDER BY store_timestamp, broker, physical_offset LIMIT {limit + 1}")

    def _select_rows(self, conditions_sql: Sequence[str], sql_suffix: str = "") -> list[Row]:
        return self.to_rows(run_sql(self.messages, "messages", self.select_sql(conditions_sql) + sql_suffix))

    def select_sql(self, conditions_sql: Sequence[str]) -> str:
        """Return SQL that selects the needed columns of the rows of `messages` that meet conditions."""
        return f"SELECT {self._columns} FROM messages WHERE {' AND '.join(conditions_sql)}"

    def to_rows(self, batches: Iterable[pa.RecordBatch]) -> list[Row]:
        """Convert batches to dictionaries, one for each row, in which `properties` is a dictionary, too."""
        rows: list[dict[str, Any]] = list(to_row_dicts(batches))
        for row in rows:
            row["properties"] = dict(row["properties"] or ())
        return list(rows)

    def read_edges_of(self, nodes: Collection[str], limit: int) -> list[Row]:
        """Return the rows of `edges` of the given nodes, at most `limit` + 1; an edge may appear twice."""
        if self.edges is None or not nodes:
            return []
        wanted = set(nodes)
        listed = sorted({zlib.crc32(node.encode("utf-8", "surrogatepass")) for node in wanted})
        found: list[Row] = []
        for start in range(0, len(listed), _PER_QUESTION):
            where = in_condition("node_hash", map(str, listed[start : start + _PER_QUESTION]))
            rows = to_row_dicts(run_sql(self.edges, "edges", f"SELECT * FROM edges WHERE {where}"))
            found += islice((row for row in rows if row["node"] in wanted), limit + 1 - len(found))
            if len(found) > limit:
                break
        return found

    def read_newest_store_times(self, brokers: Iterable[str]) -> dict[str, datetime.datetime]:
        """Return the store time of the newest archived record of each broker, if known."""
        last = read_last_commit(self.lake)
        stores = {} if last is None else last.stores
        places: dict[Place, datetime.datetime | None] = {}
        for broker in brokers:
            progress = stores.get(broker)
            if progress is not None and progress.last_record is not None:
                places[broker, progress.last_record.physical_offset] = None
        found = {row["broker"]: row["store_timestamp"] for row in self._read_store_times(places)}
        missing = sorted(set(brokers) - set(found))
        if missing:
            names = in_condition("broker", map(text_literal, missing))
            sql = f"SELECT broker, max(store_timestamp) AS newest FROM messages WHERE {names} GROUP BY broker"
            found |= {
                row["broker"]: row["newest"] for row in list(to_row_dicts(run_sql(self.messages, "messages", sql)))
            }
        return {broker: at for broker, at in found.items() if at is not None}

    def _read_store_times(self, message_places: Collection[Place]) -> list[Row]:
        if not message_places:
            return []
        offsets = in_condition("physical_offset", (str(offset) for _, offset in message_places))
        sql = f"SELECT broker, physical_offset, store_timestamp FROM messages WHERE {offsets}"
        rows = list(to_row_dicts(run_sql(self.messages, "messages", sql)))
        return [row for row in rows if (row["broker"], row["physical_offset"]) in message_places]


_FIRST = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


def newest_message_places(message_places: pa.Table, limit: int) -> dict[Place, datetime.datetime | None]:
    """Return the newest of the given log positions of messages, with their store times."""
    order = pc.sort_indices(message_places, [("store_timestamp", "descending"), ("physical_offset", "descending")])
    chosen = message_places.take(order[:limit])
    names = ("broker", "physical_offset", "store_timestamp")
    rows = to_row_dicts(chosen.select(names).to_batches())
    return {(row["broker"], row["physical_offset"]): row["store_timestamp"] for row in rows}


def time_conditions(question: Question) -> list[str]:
    """Return SQL conditions for the time range of a query."""
    return selection_conditions(Selection(start=question.start, end=question.end))


def keep_places_in_time_range(message_places: pa.Table, question: Question) -> pa.Table:
    """Return those log positions of messages whose store time is in the time range of a query."""
    if question.start is None and question.end is None:
        return message_places
    column = message_places.column("store_timestamp")
    times, is_known = to_numpy_numbers(column), to_numpy_numbers(pc.is_valid(column))
    chosen = is_known != 0
    if question.start is not None:
        chosen &= times >= epoch_us(question.start)
    if question.end is not None:
        chosen &= times < epoch_us(question.end)
    return message_places.filter(to_boolean_array(chosen))


def _are_trace_topics(topics: pa.ChunkedArray) -> pa.ChunkedArray:
    traces = [topic for topic in pc.unique(topics).to_pylist() if topic is not None and kind_of(topic) is Kind.TRACE]
    return pc.is_in(topics, to_string_array(traces))
