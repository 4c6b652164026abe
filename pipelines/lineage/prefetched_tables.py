"""Look-ups for the stories of many keys: the rows of all of them are read first, in a few scans of each table.

The story of each key is then gathered by the same code as that of a single key, from the rows in memory. A look-up of
something that was not read before is made in the lake, so the answer never depends on what was read before.

    keys → places (message_keys, or one scan of messages) → records → nodes → edges → records at their ends → …

Places are found for all keys together, and stay in Arrow. Rows, which take far more memory as Python objects, are read
for as many keys at a time as have a limited number of them.
"""

from __future__ import annotations

import datetime
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import to_boolean_array, to_numpy_numbers, to_string_array
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.delta_log.versions import VersionsError
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.rows.message_places import WantedMessages
from commitlake.connectors.lake.sql import text_literal
from commitlake.pipelines.lineage.message_history import Question
from commitlake.pipelines.lineage.row_gathering import HUBS, MAX_ROUNDS, node_id_of, place_of_edge_end
from commitlake.pipelines.lineage.table_lookups import (
    LineageTables,
    Matches,
    Place,
    Row,
    keep_places_in_time_range,
    newest_message_places,
    time_conditions,
)
from commitlake.pipelines.message_keys.lookup import PLACES, find_indexed_places_by_key
from commitlake.pipelines.message_keys.progress import BUSINESS_KEY, UNIQUE_KEY
from commitlake.pipelines.tps.result_rows import to_row_dicts
from commitlake.schemas.layouts.rocketmq.topics import Kind
from commitlake.schemas.tables.edges import EDGES
from commitlake.schemas.tables.messages import MESSAGES

_MAX_PLACES = 20_000
"""Number of matching messages of the keys whose stories are read together."""
_MAX_ROWS = 100_000
"""Number of rows of `messages` and `edges` in memory together; others are read by the stories that need them."""
_MAX_HALVINGS = 4
"""How often keys are halved if they have too many rows together."""
_MIN_SCANNED = 6_000
"""Number of look-ups from which a table is scanned once instead."""
_MESSAGES, _EDGES = arrow_schema(MESSAGES), arrow_schema(EDGES)


class PrefetchedTables(LineageTables):
    """Tables of a lake, with the rows for the histories of some of the given keys kept in memory.

    Args:
        lake: The lake, pinned to versions.
        keys: Business keys.
        question: Times and limits of the stories.
    """

    def __init__(self, lake: Lake, keys: Sequence[str], question: Question) -> None:
        super().__init__(lake)
        self._keys, self._question = keys, question
        self._rows: dict[Place, Row | None] = {}
        self._edges_of: dict[str, list[Row]] = {}
        self._edge_count = 0
        self._newest_times: dict[str, datetime.datetime | None] = {}
        self._copies: _PlacesByKey | None = None
        indexed = self._read_places(keys, BUSINESS_KEY)
        self._is_scanned = indexed is None
        self._places = self._scan_places(keys) if indexed is None else indexed

    def prefetch_in_parts(self) -> Iterator[Sequence[str]]:
        """Yield the keys in parts, with each part's rows in memory until the next part is asked for.

        A key without others in its part has no rows in memory: its story reads them, as that of a single key.
        """
        parts = [(part, 0) for part in reversed(self._divide_keys())]
        while parts:
            part, halvings = parts.pop()
            is_complete = self._read_ahead(part)
            if is_complete or halvings == _MAX_HALVINGS:
                yield part
            else:
                middle = len(part) // 2
                parts += [(part[middle:], halvings + 1), (part[:middle], halvings + 1)]

    def _divide_keys(self) -> list[Sequence[str]]:
        """Divide the keys into parts with at most `_MAX_PLACES` messages; a key with more is alone."""
        parts: list[list[str]] = []
        room = -1
        for key in self._keys:
            count = min(self._places.count(key), self._question.limit)
            room -= count
            if room < 0:
                parts.append([])
                room = _MAX_PLACES - count
            parts[-1].append(key)
        return list(parts)

    def _read_ahead(self, keys: Sequence[str]) -> bool:
        """Replace the rows in memory by those for the given keys; return False if there are too many."""
        self._rows, self._edges_of, self._edge_count, self._copies = {}, {}, 0, None
        if len(keys) == 1:
            return True
        wanted: dict[Place, datetime.datetime | None] = {}
        for key in keys:
            wanted |= self._newest_places(self._places.places_of(key))
        self._load_rows(wanted)
        return self.edges is None or (self._follow_edges() and self._load_copies_of_dead_letters())

    def _newest_places(self, places: pa.Table) -> dict[Place, datetime.datetime | None]:
        return newest_message_places(keep_places_in_time_range(places, self._question), self._question.limit)

    def _free_row_count(self) -> int:
        """Return how many more rows may be kept in memory."""
        return max(0, _MAX_ROWS - len(self._rows) - self._edge_count)

    def _follow_edges(self) -> bool:
        """Read the edges of the rows in memory, and the records at their ends; return False if there are too many."""
        nodes = {node_id_of(row) for row in self._rows.values() if row is not None}
        for _ in range(MAX_ROUNDS):
            edges = self._load_edges(nodes)
            if edges is None:
                return False
            ends = {}
            for row in edges:
                for end in ("from", "to"):
                    place = place_of_edge_end(row, end)
                    if place is not None and place not in self._rows and row["absent_end"] != end:
                        ends[place] = row[f"{end}_timestamp"]
            if len(ends) > self._free_row_count():
                return False
            self._load_rows(ends)
            read = [self._rows[place] for place in ends]
            nodes = {node_id_of(row) for row in read if row is not None and row["kind"] not in HUBS}
            nodes -= self._edges_of.keys()
            if not nodes:
                break
        return True

    def _load_copies_of_dead_letters(self) -> bool:
        rows = [row for row in self._rows.values() if row is not None and row["kind"] == Kind.DLQ]
        unique_keys = sorted({row["unique_key"] for row in rows if row["unique_key"]})
        self._copies = self._read_places(unique_keys, UNIQUE_KEY) if unique_keys else None
        if self._copies is None:
            return True
        wanted: dict[Place, datetime.datetime | None] = {}
        for key in unique_keys:
            places = self._newest_places(self._copies.places_of(key))
            wanted |= {place: at for place, at in places.items() if place not in self._rows}
            if len(wanted) > self._free_row_count():
                return False
        self._load_rows(wanted)
        return True

    def _read_places(self, keys: Sequence[str], key_kind: str) -> _PlacesByKey | None:
        """Read the log positions of the messages of keys from `message_keys`; None if that table cannot be used."""
        try:
            found = find_indexed_places_by_key(self.lake, keys, key_kind)
        except VersionsError:
            return None
        return None if found is None else _PlacesByKey(keys, found)

    def _scan_places(self, keys: Sequence[str]) -> _PlacesByKey:
        """Find the log positions of the messages of business keys by one scan of `messages`.

        Trace messages are left out.
        """
        where = " AND ".join([f"kind <> {text_literal(Kind.TRACE)}", *time_conditions(self._question)])
        sql = f"SELECT {', '.join(PLACES.names)}, keys FROM messages WHERE {where}"
        schema = PLACES.append(pa.field("keys", pa.list_(pa.string())))
        wanted, found = to_string_array(list(keys)), []
        for batch in run_sql(self.messages, "messages", sql):
            rows = pa.Table.from_batches([batch]).cast(schema).combine_chunks()
            lists = rows.column("keys").combine_chunks()
            is_wanted = pc.is_in(pc.list_flatten(lists), wanted)
            chosen = rows.select(PLACES.names).take(pc.list_parent_indices(lists).filter(is_wanted))
            found.append(chosen.append_column("key", pc.list_flatten(lists).filter(is_wanted)))
        empty = PLACES.append(pa.field("key", pa.string())).empty_table()
        return _PlacesByKey(keys, pa.concat_tables([empty, *found]))

    def _find_key_places(self, key: str, key_kind: str) -> pa.Table | None:
        if key_kind != BUSINESS_KEY:
            if self._copies is None or key not in self._copies:
                return super()._find_key_places(key, key_kind)
            return self._copies.places_of(key)
        if key not in self._places:
            return super()._find_key_places(key, key_kind)
        return None if self._is_scanned else self._places.places_of(key)

    def _scan_messages(self, key: str, key_kind: str, question: Question) -> Matches:
        if key_kind != BUSINESS_KEY or not self._is_scanned or key not in self._places:
            return super()._scan_messages(key, key_kind, question)
        places = self._places.places_of(key)
        rows = self.read_message_rows(newest_message_places(places, question.limit))
        return Matches(rows, max(0, places.num_rows - question.limit))

    def read_message_rows(self, message_places: Mapping[Place, datetime.datetime | None]) -> list[Row]:
        """Return the rows of `messages` at the given log positions, from memory if possible."""
        unknown = {place: at for place, at in message_places.items() if place not in self._rows}
        read = super().read_message_rows(unknown) if unknown else []
        known = (self._rows.get(place) for place in message_places)
        return [*(row for row in known if row is not None), *read]

    def read_edges_of(self, nodes: Collection[str], limit: int) -> list[Row]:
        """Return the rows of `edges` of the given nodes, from memory if possible."""
        unknown = [node for node in nodes if node not in self._edges_of]
        known = (row for node in nodes for row in self._edges_of.get(node, ()))
        found = list(islice(known, limit + 1))
        if unknown and len(found) <= limit:
            found += super().read_edges_of(unknown, limit - len(found))
        return found

    def read_newest_store_times(self, brokers: Iterable[str]) -> dict[str, datetime.datetime]:
        """Return the store time of the newest archived record of each broker, if known."""
        wanted = list(brokers)
        if unknown := [broker for broker in wanted if broker not in self._newest_times]:
            self._newest_times |= dict.fromkeys(unknown) | super().read_newest_store_times(unknown)
        return {broker: at for broker in wanted if (at := self._newest_times[broker]) is not None}

    def _load_rows(self, places: Mapping[Place, datetime.datetime | None]) -> None:
        self._rows |= dict.fromkeys(places)
        if len(places) < _MIN_SCANNED:
            rows: Iterable[Row] = super().read_message_rows(places)
        else:
            rows = self._scan_rows(places)
        for row in rows:
            self._rows[row["broker"], row["physical_offset"]] = row

    def _scan_rows(self, places: Collection[Place]) -> Iterable[Row]:
        wanted = WantedMessages.of(places)
        for batch in run_sql(self.messages, "messages", self.select_sql([wanted.condition()])):
            yield from self.to_rows([wanted.select(_cast_to_table(batch, _MESSAGES))])

    def _load_edges(self, nodes: Collection[str]) -> Sequence[Row] | None:
        """Read the rows of `edges` of nodes into memory and return them; None if there are too many."""
        room = self._free_row_count()
        if len(nodes) < _MIN_SCANNED:
            found = super().read_edges_of(nodes, room)
        else:
            found = list(islice(self._scan_edges(set(nodes)), room + 1))
        if len(found) > room:
            return None
        self._edges_of |= {node: [] for node in nodes}
        for row in found:
            self._edges_of[row["node"]].append(row)
        self._edge_count += len(found)
        return found

    def _scan_edges(self, nodes: set[str]) -> Iterable[Row]:
        assert self.edges is not None
        hashes = np.array(sorted({zlib.crc32(node.encode("utf-8", "surrogatepass")) for node in nodes}), np.int64)
        sql = f"SELECT * FROM edges WHERE node_hash >= {hashes[0]} AND node_hash <= {hashes[-1]}"
        for batch in run_sql(self.edges, "edges", sql):
            found = to_numpy_numbers(batch.column("node_hash"), null_value=-1)
            chosen = _cast_to_table(batch, _EDGES).filter(to_boolean_array(np.isin(found, hashes)))
            for row in to_row_dicts([chosen]):
                if row["node"] in nodes:
                    yield row


def _cast_to_table(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast a batch to the types of a table, as Arrow cannot filter the text type that the SQL engine returns."""
    names = batch.schema.names
    return batch.cast(pa.schema([schema.field(name) if name in schema.names else batch.field(name) for name in names]))


class _PlacesByKey:
    """Index of the log positions of messages by key.

    Args:
        keys: Keys, also those without messages.
        places: A table of `PLACES` and `key`, with no other keys.
    """

    def __init__(self, keys: Sequence[str], places: pa.Table) -> None:
        self._numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        self._places = places.select(PLACES.names).combine_chunks()
        key_numbers = to_numpy_numbers(pc.index_in(places.column("key"), value_set=to_string_array([*self._numbers])))
        brokers, offsets = places.column("broker"), to_numpy_numbers(places.column("physical_offset"))
        broker_numbers = to_numpy_numbers(pc.index_in(brokers, value_set=pc.unique(brokers)))
        order = np.lexsort((offsets, broker_numbers, key_numbers))
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = False
        for column in (key_numbers, broker_numbers, offsets):
            ordered = column[order]
            is_first[1:] |= ordered[1:] != ordered[:-1]
        self._order = order[is_first]
        self._starts = np.searchsorted(key_numbers[self._order], np.arange(len(self._numbers) + 1))

    def __contains__(self, key: str) -> bool:
        return key in self._numbers

    def count(self, key: str) -> int:
        """Return the number of messages of a key."""
        number = self._numbers[key]
        return int(self._starts[number + 1] - self._starts[number])

    def places_of(self, key: str) -> pa.Table:
        """Return the log positions of the messages of a key."""
        number = self._numbers[key]
        return self._places.take(pa.array(self._order[self._starts[number] : self._starts[number + 1]]))
