"""The erased messages of a lake, which code that rewrites or counts messages must leave out.

The erasures are in the table `erasures`, see `schemas.tables.erasures`. An erasure is valid from the commit that adds
its row `begun`: that commit contains the number of the erasure in an application transaction (Delta's `txn` action).
Each table with data of messages gets the same transaction once that erasure has been applied to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.lake.delta_log.check import WAY_OUT, LogDamagedError
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.numpy_arrays import Array

APPLICATION_ID = "commitlake.erasure"
FORM_ID = "commitlake.erasure.form"
FORM = 2
"""What an erasure removes from `messages`, recorded in its log as FORM_ID: 1, or nothing, before body_crc and tags."""
MARKER = "COMMITLAKE_ERASED"
"""Property of an erased message; its value is the erasure's id."""
_COLUMNS = ["broker", "physical_offset", "erasure_id", "number"]


@dataclass(frozen=True, slots=True)
class ErasedOffsets:
    """The physical offsets of the erased messages of one broker, and the erasure of each.

    Attributes:
        offsets: int64, sorted.
        ids: for each message, the index of its erasure in `ErasedMessages.ids`.
    """

    offsets: Array
    ids: Array


@dataclass(frozen=True)
class ErasedMessages:
    """The erased messages of a lake, by broker and physical offset; can be pickled.

    Attributes:
        number: number of the newest erasure; 0 for none.
        ids: ids of the erasures.
        numbers: numbers of the erasures.
        brokers: erased messages by broker.
    """

    number: int = 0
    ids: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    brokers: Mapping[str, ErasedOffsets] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.brokers)

    def has_any_in_range(self, broker: str, start: int, end: int) -> bool:
        """Return True if any message in a range of a broker's log is erased."""
        found = self.brokers.get(broker)
        if found is None:
            return False
        first, last = np.searchsorted(found.offsets, [start, end])
        return bool(last > first)

    def select_after_offsets(self, end_offsets: Mapping[str, int]) -> ErasedMessages:
        """Return the erased messages at or after their broker's offset; for a broker without an offset, return all."""
        kept = {}
        for broker, found in self.brokers.items():
            chosen = found.offsets >= end_offsets.get(broker, 0)
            if chosen.any():
                kept[broker] = ErasedOffsets(found.offsets[chosen], found.ids[chosen])
        return ErasedMessages(self.number, self.ids, self.numbers, kept)

    def find_erasure_indexes(self, broker: str, offsets: Array) -> Array:
        """Return, for each message of a broker, the index in `ids` of its erasure; -1 if it is not erased."""
        found = self.brokers.get(broker)
        result = np.full(len(offsets), -1, np.int64)
        if found is None or not len(found.offsets):
            return result
        place = np.minimum(np.searchsorted(found.offsets, offsets), len(found.offsets) - 1)
        is_there = found.offsets[place] == offsets
        result[is_there] = found.ids[place[is_there]]
        return result

    def find_row_erasure_indexes(self, brokers: pa.Array, offsets: pa.Array) -> Array:
        """Return, for each row of several brokers, the index in `ids` of its erasure; -1 if it is not erased.

        Args:
            brokers: texts, or a dictionary array of texts.
            offsets: int64.
        """
        encoded = brokers if pa.types.is_dictionary(brokers.type) else pc.dictionary_encode(brokers)
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        values = offsets.fill_null(-1).to_numpy(zero_copy_only=False)
        result = np.full(len(values), -1, np.int64)
        for code, broker in enumerate(encoded.dictionary.to_pylist()):
            if broker in self.brokers:
                rows = np.flatnonzero(codes == code)
                result[rows] = self.find_erasure_indexes(broker, values[rows])
        return result

    def drop_erased_rows(self, rows: pa.Table) -> pa.Table:
        """Return rows without the rows of erased messages.

        Args:
            rows: with `broker` and `physical_offset`.
        """
        if not self.brokers:
            return rows
        # The codes of brokers below need one dictionary for all chunks.
        rows = rows.unify_dictionaries().combine_chunks()
        ids = self.find_row_erasure_indexes(
            rows.column("broker").combine_chunks(), rows.column("physical_offset").combine_chunks()
        )
        return rows.filter(pa.array(ids < 0)) if (ids >= 0).any() else rows


NOTHING_ERASED = ErasedMessages()


def open_erasures(lake: Lake) -> DeltaTable | None:
    """Open the table `erasures`; None if nothing was ever erased.

    Raises:
        LogDamagedError: if the table is damaged, or missing although `messages` knows of an erasure.
    """
    table = lake.find("erasures")
    if table is None and is_erasures_table_missing(lake):
        raise LogDamagedError(
            f"{lake.uri('erasures')}: the table is missing, but {lake.uri('messages')} records erasures. {WAY_OUT}"
        )
    return table


def is_erasures_table_missing(lake: Lake) -> bool:
    """Return True if the log of `messages` shows erasures, but the lake's table `erasures` is missing."""
    if not newest_erasure_number(lake.find("messages")):
        return False
    try:
        return lake.find("erasures") is None
    except LogDamagedError:  # reported by the check of that table
        return False


def newest_erasure_number(table: DeltaTable | None) -> int:
    """Return the number of the newest erasure that a table's log records; 0 for none."""
    return 0 if table is None else table.transaction_version(APPLICATION_ID) or 0


def read_erasure_rules_version(table: DeltaTable) -> int:
    """Return the version of the rules, at most `FORM`, by which columns of erased rows in `messages` were emptied."""
    return table.transaction_version(FORM_ID) or (1 if newest_erasure_number(table) else FORM)


def read_erased_messages(lake: Lake) -> ErasedMessages:
    """Read broker and physical offset of all erased messages.

    Raises:
        LogDamagedError: if the table `erasures` is damaged.
    """
    table = open_erasures(lake)
    if table is None:
        return NOTHING_ERASED
    rows = table.to_pyarrow_table(columns=[*_COLUMNS, "event"])
    # Other events of an erasure repeat the same messages.
    is_first = pc.is_in(rows.column("event"), pa.array(["message", "copy"]))
    return parse_erased_messages(rows.filter(is_first), newest_erasure_number(table))


def parse_erased_messages(rows: pa.Table, erasure_number: int) -> ErasedMessages:
    """Return the erased messages that rows of `erasures` list.

    Args:
        rows: rows of the events `message` and `copy`; if a message was erased twice, the first erasure counts.
        erasure_number: number of the newest erasure.

    Raises:
        LogDamagedError: if a row does not name its message or its erasure.
    """
    # By number, so that `unique`, which returns the first of equal offsets, finds the first erasure of a message.
    rows = rows.select(_COLUMNS).sort_by("number").combine_chunks()
    if any(rows.column(name).null_count for name in _COLUMNS):
        raise LogDamagedError(
            f"the table 'erasures': expected {', '.join(_COLUMNS)} in each row, found a row without one of them. "
            f"{WAY_OUT}"
        )
    encoded = pc.dictionary_encode(rows.column("erasure_id").combine_chunks())
    codes = encoded.indices.to_numpy().astype(np.int64)
    brokers: dict[str, ErasedOffsets] = {}
    names = rows.column("broker").combine_chunks()
    offsets = rows.column("physical_offset").to_numpy()
    for broker in pc.unique(names).to_pylist():
        chosen = np.flatnonzero(pc.equal(names, broker).to_numpy(zero_copy_only=False))
        unique, first = np.unique(offsets[chosen], return_index=True)
        brokers[broker] = ErasedOffsets(unique, codes[chosen][first])
    ids = tuple(encoded.dictionary.to_pylist())
    known = dict(zip(rows.column("erasure_id").to_pylist(), rows.column("number").to_pylist(), strict=True))
    return ErasedMessages(erasure_number, ids, tuple(known[erasure_id] for erasure_id in ids), brokers)
