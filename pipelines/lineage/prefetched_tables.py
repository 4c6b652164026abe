"""Look-ups for the stories of many keys: the rows of all of them are read first, in a few scans of each table.

The story of each key is then gathered by the same code as that of a single key, from the rows in memory. A look-up of
something that was not read before is made in the lake, so the answer never depends on what was read before.

    keys → places (message_keys, or one scan of messages) → records → nodes → edges → records at their ends → …
"""

from __future__ import annotations

import datetime
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.delta_log.versions import VersionsError
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.rows.message_places import PlaceSet
from commitlake.connectors.lake.sql import text_literal
from commitlake.connectors.plain_arrays import to_boolean_array, to_numpy_numbers, to_string_array
from commitlake.pipelines.lineage.message_history import Question
from commitlake.pipelines.lineage.row_gathering import HUBS, MAX_ROUNDS, node_id_of, place_of_edge_end
from commitlake.pipelines.lineage.table_lookups import (
    LineageTables,
    Matches,
    Place,
    Row,
    keep_times,
    newest_message_places,
    time_conditions,
)
from commitlake.pipelines.message_keys.lookup import PLACES, find_indexed_places_by_key
from commitlake.pipelines.message_keys.progress import BUSINESS_KEY, UNIQUE_KEY
from commitlake.pipelines.tps.result_rows import to_row_dicts
from commitlake.schemas.layouts.rocketmq.topics import Kind
from commitlake.schemas.tables.edges import EDGES
from commitlake.schemas.tables.messages import MESSAGES

_MAX_ROWS = 1_000_000
"""Number of rows of `edges` that are read before the stories; others are read by the stories that need them."""
_MIN_SCANNED = 6_000
"""Number of look-ups from which a table is scanned once instead."""
_MESSAGES, _EDGES = arrow_schema(MESSAGES), arrow_schema(EDGES)
_NO_PLACES = pa.Table.from_batches([], PLACES)


class PrefetchedTables(LineageTables):
    """Tables of a lake, with the rows for the stories of the given keys loaded into memory.

    Args:
        lake: The lake, pinned to versions.
        keys: Business keys.
        question: Times and limits of the stories.
    """

    def __init__(self, lake: Lake, keys: Sequence[str], question: Question) -> None:
        super().__init__(lake)
        self._rows: dict[Place, Row | None] = {}
        self._edges_of: dict[str, list[Row]] = {}
        self._newest_times: dict[str, datetime.datetime | None] = {}
        self._places: dict[str, dict[str, pa.Table]] = {}
        self._scanned: dict[str, pa.Table] | None = None
        self._read_ahead(keys, question)

    def _read_ahead(self, keys: Sequence[str], question: Question) -> None:
        found = self._read_places(keys, BUSINESS_KEY)
        if found is None:
            found = self._scanned = self._scan_places(keys, question)
        wanted: dict[Place, datetime.datetime | None] = {}
        for places in found.values():
            wanted |= newest_message_places(keep_times(places, question), question.limit)
        self._load_rows(wanted)
        if self.edges is None:
            return
        nodes = {node_id_of(row) for row in self._rows.values() if row is not None}
        for _ in range(MAX_ROUNDS):
            edges = self._load_edges(nodes)
            ends = {}
            for row in edges:
                for end in ("from", "to"):
                    place = place_of_edge_end(row, end)
                    if place is not None and place not in self._rows and row["absent_end"] != end:
                        ends[place] = row[f"{end}_timestamp"]
            self._load_rows(ends)
            read = [self._rows[place] for place in ends]
            nodes = {node_id_of(row) for row in read if row is not None and row["kind"] not in HUBS}
            nodes -= self._edges_of.keys()
            if not nodes or sum(map(len, self._edges_of.values())) > _MAX_ROWS:
                break
        self._load_copies_of_dead_letters(question)

    def _load_copies_of_dead_letters(self, question: Question) -> None:
        rows = [row for row in self._rows.values() if row is not None and row["kind"] == Kind.DLQ]
        unique_keys = sorted({row["unique_key"] for row in rows if row["unique_key"]})
        found = self._read_places(unique_keys, UNIQUE_KEY) if unique_keys else None
        wanted: dict[Place, datetime.datetime | None] = {}
        for places in (found or {}).values():
            wanted |= newest_message_places(keep_times(places, question), question.limit)
        self._load_rows({place: at for place, at in wanted.items() if place not in self._rows})

    def _read_places(self, keys: Sequence[str], key_kind: str) -> dict[str, pa.Table] | None:
        """Read the log positions of the messages of keys from `message_keys`; None if that table cannot be used."""
        try:
            found = find_indexed_places_by_key(self.lake, keys, key_kind)
        except VersionsError:
            return None
        if found is None:
            return None
        self._places[key_kind] = dict.fromkeys(keys, _NO_PLACES) | _divide_by_key(found)
        return self._places[key_kind]

    def _scan_places(self, keys: Sequence[str], question: Question) -> dict[str, pa.Table]:
        """Find the log positions of the messages of business keys by one scan of `messages`.

        Trace messages are left out.
        """
        where = " AND ".join([f"kind <> {text_literal(Kind.TRACE)}", *time_conditions(question)])
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
        return dict.fromkeys(keys, _NO_PLACES) | _divide_by_key(pa.concat_tables([empty, *found]))

    def _find_key_places(self, key: str, key_kind: str) -> pa.Table | None:
        if key_kind == BUSINESS_KEY and self._scanned is not None and key in self._scanned:
            return None
        found = self._places.get(key_kind, {}).get(key)
        return super()._find_key_places(key, key_kind) if found is None else found

    def _scan_messages(self, key: str, key_kind: str, question: Question) -> Matches:
        if key_kind != BUSINESS_KEY or self._scanned is None or key not in self._scanned:
            return super()._scan_messages(key, key_kind, question)
        places = self._scanned[key]
        rows = self.read_message_rows(newest_message_places(places, question.limit))
        return Matches(rows, max(0, places.num_rows - question.limit))

    def read_message_rows(self, message_places: Mapping[Place, datetime.datetime | None]) -> list[Row]:
        """Return the rows of `messages` at the given places, see `LineageTables.read_message_rows`."""
        unknown = {place: at for place, at in message_places.items() if place not in self._rows}
        read = super().read_message_rows(unknown) if unknown else []
        known = (self._rows.get(place) for place in message_places)
        return [*(row for row in known if row is not None), *read]

    def read_edges_of(self, nodes: Collection[str], limit: int) -> list[Row]:
        """Return the rows of `edges` of the given nodes, see `LineageTables.read_edges_of`."""
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
        wanted = PlaceSet.of(places)
        for batch in run_sql(self.messages, "messages", self.select_sql([wanted.condition()])):
            yield from self.to_rows([wanted.select(_cast_to_table(batch, _MESSAGES))])

    def _load_edges(self, nodes: Collection[str]) -> Sequence[Row]:
        """Read the rows of `edges` of nodes, and return them."""
        self._edges_of |= {node: [] for node in nodes}
        found = (
            super().read_edges_of(nodes, _MAX_ROWS) if len(nodes) < _MIN_SCANNED else list(self._scan_edges(set(nodes)))
        )
        for row in found:
            self._edges_of[row["node"]].append(row)
        if len(found) > _MAX_ROWS:  # some are missing: each story reads its own
            for node in nodes:
                del self._edges_of[node]
        return found

    def _scan_edges(self, nodes: set[str]) -> Iterable[Row]:
        assert self.edges is not None
        hashes = np.array(sorted({zlib.crc32(node.encode("utf-8", "surrogatepass")) for node in nodes}), np.int64)
        sql = f"SELECT * FROM edges WHERE node_hash >= {hashes[0]} AND node_hash <= {hashes[-1]}"
        count = 0
        for batch in run_sql(self.edges, "edges", sql):
            found = to_numpy_numbers(batch.column("node_hash"), null_value=-1)
            chosen = _cast_to_table(batch, _EDGES).filter(to_boolean_array(np.isin(found, hashes)))
            for row in to_row_dicts([chosen]):
                if row["node"] in nodes:
                    count += 1
                    yield row
            if count > _MAX_ROWS:
                return


def _cast_to_table(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch cast to the types of a table. The engine returns texts in a form that cannot be filtered."""
    names = batch.schema.names
    return batch.cast(pa.schema([schema.field(name) if name in schema.names else batch.field(name) for name in names]))


def _divide_by_key(places: pa.Table) -> dict[str, pa.Table]:
    """Return the distinct log positions of the messages of each key, from a table with the column `key`."""
    encoded = places.column("key").combine_chunks().dictionary_encode()
    rows_of: dict[int, dict[tuple[object, object], int]] = defaultdict(dict)
    codes = np.asarray(encoded.indices).tolist()
    brokers, offsets = places.column("broker").to_pylist(), places.column("physical_offset").to_pylist()
    for number, (code, broker, offset) in enumerate(zip(codes, brokers, offsets, strict=True)):
        rows_of[code][broker, offset] = number
    own = places.select(PLACES.names)
    keys = encoded.dictionary.to_pylist()
    return {keys[code]: own.take(pa.array(list(rows.values()))) for code, rows in rows_of.items()}
