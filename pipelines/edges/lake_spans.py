"""Extent of a lake for each broker, which explains why an end of a step is absent.

It is read from the log of `messages`. Data files are opened only if they have rows of several brokers, as merged files
have, and only those that may have a broker's first or last rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import to_numpy_numbers
from commitlake.connectors.lake.archive_commits import newest_commit
from commitlake.connectors.lake.delta_log.file_actions import read_file_actions
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.table_rows import convert_data_file_errors
from commitlake.connectors.numpy_arrays import Array
from commitlake.schemas.tables.edges import LINK_DAYS, AbsentReason
from commitlake.schemas.times import epoch_us

LINK_US = LINK_DAYS * 86_400_000_000
"""`LINK_DAYS` in microseconds."""
_PLACE_IN_LOG = ("physical_offset", "store_timestamp")
_EXPIRED = "commitlake.expiredBefore.messages"


@dataclass(frozen=True, slots=True)
class BrokerSpan:
    """First and last physical offset and store time of one broker's rows in `messages`.

    Attributes:
        first_offset: smallest physical offset.
        end_offset: largest physical offset, plus one.
        first_us: smallest store time, microseconds since 1970.
        last_us: largest store time, microseconds since 1970.
    """

    first_offset: int
    end_offset: int
    first_us: int
    last_us: int


@dataclass(frozen=True)
class BrokerSpans:
    """First and last row of each broker in the lake, and up to which time its rows were searched for edges; picklable.

    Attributes:
        brokers: extents by broker name.
        has_expired: True if rows of `messages` were dropped because of their age.
        pulled: brokers that the last run pulled from; their rows may come in another order than that of the log.
        linked_us: store time up to which a broker's rows were linked before an increment, by broker name; a broker
            without rows then is absent.
        complete_us: store time up to which they are linked after it; a broker whose rows are all linked is absent.
    """

    brokers: Mapping[str, BrokerSpan] = field(default_factory=dict)
    has_expired: bool = False
    pulled: frozenset[str] = frozenset()
    linked_us: Mapping[str, int] = field(default_factory=dict)
    complete_us: Mapping[str, int] = field(default_factory=dict)

    @property
    def first_us(self) -> int:
        """Smallest store time of any row."""
        return min((span.first_us for span in self.brokers.values()), default=0)

    @property
    def last_us(self) -> int:
        """Largest store time of any row."""
        return max((span.last_us for span in self.brokers.values()), default=0)

    @property
    def _reason_before_first(self) -> str:
        return str(AbsentReason.EXPIRED if self.has_expired else AbsentReason.BEFORE_ARCHIVE)

    def reasons_at_positions(self, brokers: pa.Array, offsets: pa.Array) -> pa.Array:
        """Return, for each given physical offset in a broker's log, the reason why the lake has no record there."""
        known = to_numpy_numbers(offsets.cast(pa.int64()), null_value=-1)
        names = pc.dictionary_encode(brokers)
        codes = to_numpy_numbers(names.indices.cast(pa.int64()), null_value=-1)
        found = np.full(len(known), str(AbsentReason.NOT_YET), object)
        for code, name in enumerate(names.dictionary.to_pylist()):
            span = self.brokers.get(name)
            if span is not None:
                mine = codes == code
                found[mine & (known < span.end_offset)] = str(AbsentReason.LOST)
                # The more precise reason comes last, and replaces the one before.
                found[mine & (known < span.first_offset)] = self._reason_before_first
        return pa.array(found, pa.string())

    def reasons_before(self, brokers: pa.Array, times: Array, is_by_client: Array | None = None) -> pa.Array:
        """Return, for each given record, why the lake lacks a predecessor in the `LINK_DAYS` before it.

        Args:
            brokers: brokers of the later records.
            times: int64, store times of the later records.
            is_by_client: True for records that a client sent; the earlier record may then be of another broker.
        """
        names = pc.dictionary_encode(brokers)
        codes = to_numpy_numbers(names.indices.cast(pa.int64()), null_value=-1)
        found = np.full(len(times), str(AbsentReason.NOT_YET), object)
        for code, name in enumerate(names.dictionary.to_pylist()):
            span = self.brokers.get(name)
            # Only chosen topics of such a broker are in the lake, so a missing record proves no loss.
            if span is not None and name not in self.pulled:
                mine = codes == code
                found[mine] = str(AbsentReason.LOST)
                found[mine & (times < span.first_us + LINK_US)] = self._reason_before_first
        if is_by_client is not None:
            found[is_by_client] = str(AbsentReason.NOT_YET)
        return pa.array(found, pa.string())

    def linked_until_us(self, broker: str) -> int:
        """Return the store time up to which all rows of a broker have been searched for edges."""
        return self.complete_us.get(broker, self.brokers[broker].last_us)

    @property
    def all_linked_until_us(self) -> int:
        """Store time up to which the rows of every broker have been searched for edges."""
        return min(map(self.linked_until_us, self.brokers), default=0)

    def linked_until_time_mask(self, brokers: pa.Array, times: Array) -> Array:
        """Return, for each broker and time, whether all rows up to the time are linked; False for a null broker."""
        names = pc.dictionary_encode(brokers)
        ends = [self.linked_until_us(name) if name in self.brokers else 0 for name in names.dictionary.to_pylist()]
        codes = to_numpy_numbers(names.indices.cast(pa.int64()), null_value=len(ends))
        found: Array = np.array([*ends, 0], np.int64)[codes] > times
        return found

    def newly_linked_mask(self, times: Array) -> Array:
        """Return, for each time, whether all rows of some broker up to it are linked now and were not before."""
        found = np.zeros(len(times), bool)
        for broker in self.brokers:
            found |= (self.linked_us.get(broker, 0) <= times) & (times < self.linked_until_us(broker))
        return found

    def last_times_of(self, brokers: pa.Array) -> Array:
        """Return the largest store time of each broker's rows, in microseconds; that of all rows for a null broker."""
        names = pc.dictionary_encode(brokers)
        lasts = [
            self.brokers[name].last_us if name in self.brokers else self.last_us
            for name in names.dictionary.to_pylist()
        ]
        codes = to_numpy_numbers(names.indices.cast(pa.int64()), null_value=len(lasts))
        return np.array([*lasts, self.last_us], np.int64)[codes]


class LinkedExtents:
    """Tracks up to which store time each broker's rows are linked, while new data files are linked one by one.

    Args:
        lake: the lake.
        messages: its open table `messages`.
        new: names of the files that are not linked yet.

    Raises:
        LakeError: if a data file of several brokers cannot be read.
    """

    def __init__(self, lake: Lake, messages: DeltaTable, new: Collection[str]) -> None:
        newest = newest_commit(lake, messages)
        stores = {} if newest is None else newest[1].stores
        files = list(_read_file_bounds(messages))
        names = {*stores, *(name for file in files for name in (file.least, file.greatest))}
        contents = _BrokerSpansOfFiles(lake)
        whole, linked = _BrokerSpans(files, contents), _BrokerSpans([f for f in files if f.name not in new], contents)
        brokers = {name: span for name in sorted(names) if (span := whole.span_of(name)) is not None}
        self._linked = {name: span.last_us for name in brokers if (span := linked.span_of(name)) is not None}
        # A file of several brokers counts for all that it may have: what is called complete must be so.
        self._left = {
            file.name: (frozenset(filter(file.may_have, brokers)), file.span.first_us)
            for file in files
            if file.name in new
        }
        pulled = frozenset(broker for broker, store in stores.items() if store.pulled is not None)
        self._spans = BrokerSpans(brokers, _EXPIRED in messages.metadata().configuration, pulled)

    def spans_after(self, file_names: Iterable[str]) -> BrokerSpans:
        """Mark the given files as linked, and return up to which store time each broker's rows are linked now."""
        for name in file_names:
            self._left.pop(name, None)
        complete: dict[str, int] = {}
        # Rows before the first one of a file that is not linked yet are complete.
        for brokers, first_us in self._left.values():
            for broker in brokers:
                complete[broker] = min(complete.get(broker, first_us), first_us)
        spans = replace(self._spans, linked_us=self._linked, complete_us=complete)
        self._linked = {broker: spans.linked_until_us(broker) for broker in spans.brokers}
        return spans


@dataclass(frozen=True, slots=True)
class _FileBounds:
    """Smallest and largest broker name, physical offset and store time of a data file, from the table's log."""

    name: str
    least: str
    greatest: str
    span: BrokerSpan

    @property
    def has_one_broker(self) -> bool:
        return self.least == self.greatest

    def may_have(self, broker: str) -> bool:
        return self.least <= broker <= self.greatest


def _read_file_bounds(messages: DeltaTable) -> Iterator[_FileBounds]:
    for action in read_file_actions(messages).to_pylist():
        minimums, maximums = action.get("min") or {}, action.get("max") or {}
        span = _to_broker_span(minimums, maximums)
        least, greatest = minimums.get("broker"), maximums.get("broker")
        if span is not None and least is not None and greatest is not None:
            yield _FileBounds(unquote(action["path"]), least, greatest, span)


class _BrokerSpansOfFiles:
    """Reader of the first and last offset and store time of each broker's rows in data files, with a cache."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._brokers: dict[str, set[str | None]] = {}
        self._spans: dict[str, dict[str, BrokerSpan]] = {}

    def span_of(self, file: _FileBounds, broker: str) -> BrokerSpan | None:
        """Return the first and last offset and store time of a broker's rows in a file; None if it has none."""
        if file.has_one_broker:
            return file.span if file.least == broker else None
        # Names take far less time than offsets and times, and most files that are opened in vain have no more read.
        if file.name not in self._brokers:
            self._brokers[file.name] = {
                name
                for rows in self._read_row_groups(file, ["broker"], dictionaries=["broker"])
                for part in rows.column("broker").chunks
                for name in part.dictionary.to_pylist()
            }
        if broker not in self._brokers[file.name]:
            return None
        if file.name not in self._spans:
            self._spans[file.name] = self._read_spans(file)
        return self._spans[file.name].get(broker)

    def _read_spans(self, file: _FileBounds) -> dict[str, BrokerSpan]:
        spans: dict[str, BrokerSpan] = {}
        limits = [(name, kind) for kind in ("min", "max") for name in _PLACE_IN_LOG]
        for rows in self._read_row_groups(file, ["broker", *_PLACE_IN_LOG]):
            for row in rows.group_by("broker").aggregate(limits).to_pylist():
                bounds = [{name: row[f"{name}_{kind}"] for name in _PLACE_IN_LOG} for kind in ("min", "max")]
                broker, span = row["broker"], _to_broker_span(*bounds)
                if span is not None:
                    spans[broker] = _join_broker_spans(spans[broker], span) if broker in spans else span
        return spans

    def _read_row_groups(
        self, file: _FileBounds, names: list[str], dictionaries: list[str] | None = None
    ) -> Iterator[pa.Table]:
        with (
            convert_data_file_errors(self._lake.uri("messages"), file.name),
            self._lake.open_folder("messages").open_input_file(file.name) as source,
            pq.ParquetFile(source, read_dictionary=dictionaries, page_checksum_verification=True) as parquet,
        ):
            for group in range(parquet.num_row_groups):
                yield parquet.read_row_group(group, columns=names)


class _BrokerSpans:
    """First and last offset and store time of each broker's rows over several data files of `messages`."""

    def __init__(self, files: Collection[_FileBounds], contents: _BrokerSpansOfFiles) -> None:
        self._files = files
        self._contents = contents

    def span_of(self, broker: str) -> BrokerSpan | None:
        """Return the first and last offset and store time of a broker's rows; None if it has none."""
        files = [file for file in self._files if file.may_have(broker)]
        found: BrokerSpan | None = None
        for file in files:
            if file.has_one_broker:
                found = file.span if found is None else _join_broker_spans(found, file.span)
        mixed = [file for file in files if not file.has_one_broker]
        # Offsets of a broker grow with time, so the files of its first and last times also have its outer offsets.
        for file in sorted(mixed, key=lambda file: file.span.first_us):
            if found is not None and file.span.first_us >= found.first_us:
                break
            found = self._join_file(found, file, broker)
        for file in sorted(mixed, key=lambda file: -file.span.last_us):
            if found is None or file.span.last_us <= found.last_us:
                break
            found = self._join_file(found, file, broker)
        return found

    def _join_file(self, found: BrokerSpan | None, file: _FileBounds, broker: str) -> BrokerSpan | None:
        span = self._contents.span_of(file, broker)
        if span is None or found is None:
            return span or found
        return _join_broker_spans(found, span)


def _to_broker_span(minimums: dict[str, Any], maximums: dict[str, Any]) -> BrokerSpan | None:
    first, last = minimums.get("physical_offset"), maximums.get("physical_offset")
    begin, end = minimums.get("store_timestamp"), maximums.get("store_timestamp")
    if first is None or last is None or begin is None or end is None:
        return None
    return BrokerSpan(first, last + 1, epoch_us(begin), epoch_us(end))


def _join_broker_spans(first: BrokerSpan, second: BrokerSpan) -> BrokerSpan:
    return BrokerSpan(
        min(first.first_offset, second.first_offset),
        max(first.end_offset, second.end_offset),
        min(first.first_us, second.first_us),
        max(first.last_us, second.last_us),
    )
