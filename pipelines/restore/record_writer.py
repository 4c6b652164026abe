"""Serializes rows of `messages` as records at their physical offsets, without bodies, in any order.

Source of the parts of a record in the table
    direct         every field of fixed size; topic and hosts; the stored body, in a pack
    derived        version of the layout (from the length of the topic), text of the properties

The text of the properties is `name 0x01 value 0x02` for each entry of the map, in its order. The size of the record
determines the room for it, which shows which case applies:

    room             stored by the broker                                  written
    as the text      this text                                             the same
    a byte less      without the last 0x02, as brokers 4.9.1 to 5.1.4 do   the same
    more             a key twice, or entries that decoders skip            the text and padding
    any other        bytes that are not UTF-8                              nothing: the row is refused

If a key was repeated, the map has its last value. For UNIQ_KEY, the row has the first value, too, and both are written.
Brokers 4.9.4 to 5.3.3 repeat UNIQ_KEY, CLUSTER and WAIT of a batch after the own properties of each message. This is
tried first, and a text of exactly the right size is accepted as the broker's (`by_rule`). Any room that is left is
padded with an entry that decoders skip. A record with a text that is not, or may not be, the broker's is reported
(`made_up`): clients read the same properties from it, but its bytes may differ.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import to_uint8_array
from commitlake.connectors.lake.packs.compiled_copying import copy
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.kernel.compile_options import compiled
from commitlake.pipelines.restore.arrow_conversion import (
    encode_strings,
    to_bytes_and_offsets,
    to_int64_array,
    to_milliseconds,
)
from commitlake.pipelines.restore.record_arrays import NEEDED, Records, Refusal
from commitlake.schemas.errors import UsageError
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.boltmq.dialect import Magic
from commitlake.schemas.layouts.integer_parsing import parse_int32
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.commitlog import (
    FIXED_SIZE,
    HEAD,
    MAX_V1_TOPIC_LENGTH,
    MIN_RECORD_SIZE,
    PROPERTIES_LENGTH,
    STORED,
    TAIL,
    TOPIC_LENGTH,
)
from commitlake.schemas.layouts.rocketmq.hosts import V4_SIZE, V6_SIZE, Host, serialize_host
from commitlake.schemas.layouts.rocketmq.sysflag import BORN_HOST_V6, STORE_HOST_V6

_EQUALS = props.NAME_VALUE_SEPARATOR
_NEXT = props.PROPERTY_SEPARATOR
REPLACED = "\ufffd"
"""Character in the table for bytes that are not UTF-8."""
_HEAD_COLUMNS = ("queue_id", "flag", "queue_offset", "physical_offset", "sys_flag", "body_crc")
_CLUSTER = "CLUSTER"
_CRC_OF_RECORD = "__CRC32#"
"""Property with a CRC of the whole record, written by brokers with `enabledAppendPropCRC`."""


@compiled
def copy_spans(source: Array, starts: Array, lengths: Array, segment_bytes: Array, target_positions: Array) -> None:
    """Copy one value for each record from a buffer to its position in a segment.

    Args:
        source: uint8, read-only, the values.
        starts: int64, where each value begins in the source.
        lengths: int64, the length of each value.
        segment_bytes: uint8, the segment.
        target_positions: int64, where each value is copied to.
    """
    for row in range(len(starts)):
        copy(segment_bytes, target_positions[row], source, starts[row], lengths[row])


@compiled
def write_properties(
    segment_bytes: Array, target_positions: Array, lengths: Array, entry_ranges: Array, names: Array,
    name_starts: Array, values: Array,
    value_starts: Array,
) -> None:  # fmt: skip
    """Write the length and the properties of each record.

    The last separator is omitted if the length is one byte short.

    Args:
        segment_bytes: uint8, the segment.
        target_positions: int64, where the lengths are written.
        lengths: int64, size of the properties of each record: that of its entries, or one byte less.
        entry_ranges: int64[rows, 2], the first entry of each record, and the one after its last.
        names: uint8, read-only, the names of all entries.
        name_starts: int64[entries + 1], where each name begins.
        values: uint8, read-only, the values of all entries.
        value_starts: int64[entries + 1], where each value begins.
    """
    for row in range(len(target_positions)):
        length = lengths[row]
        at = target_positions[row] + 2
        segment_bytes[at - 2] = (length >> 8) & 0xFF
        segment_bytes[at - 1] = length & 0xFF
        end = at + length
        for entry in range(entry_ranges[row, 0], entry_ranges[row, 1]):
            size = name_starts[entry + 1] - name_starts[entry]
            copy(segment_bytes, at, names, name_starts[entry], size)
            segment_bytes[at + size] = _EQUALS
            at += size + 1
            size = value_starts[entry + 1] - value_starts[entry]
            copy(segment_bytes, at, values, value_starts[entry], size)
            at += size
            if at < end:
                segment_bytes[at] = _NEXT
                at += 1


class Topics(NamedTuple):
    """Topics as bytes of records, each preceded by its length.

    Attributes:
        data: all topics, one after the other.
        starts: int64, where each topic begins.
        lengths: int64, its size in bytes, including the length; 0 for a topic that no record can have.
        magics: int64, magic number of records with this topic.
        replaced: bool, true if the topic may have had other bytes.
    """

    data: bytes
    starts: Array
    lengths: Array
    magics: Array
    replaced: Array


def serialize_topics(names: Sequence[str | None]) -> Topics:
    """Serialize topics as records contain them, keeping their order."""
    stored: list[bytes] = []
    magics: list[int] = []
    for name in names:
        topic = (name or "").encode()
        # This is the choice of brokers since 5.1.0; older ones have no longer topics.
        magic = Magic.V2 if len(name or "") > MAX_V1_TOPIC_LENGTH else Magic.V1
        layout = TOPIC_LENGTH[magic]
        fits = name is not None and len(topic) < 1 << 8 * layout.size
        stored.append(layout.pack(len(topic)) + topic if fits else b"")
        magics.append(int(magic))
    lengths = np.array([len(data) for data in stored], np.int64)
    replaced = np.array([REPLACED in (name or "") for name in names], bool)
    return Topics(b"".join(stored), np.cumsum(lengths) - lengths, lengths, np.array(magics, np.int64), replaced)


class Hosts(NamedTuple):
    """IP addresses and ports of hosts as bytes of records.

    Attributes:
        data: `V6_SIZE` bytes for each host; shorter hosts are followed by zeros.
        sizes: int64, size of each host; 0 for an invalid one.
    """

    data: Array
    sizes: Array

    def truncated_host_bytes(self, size: int) -> Array:
        """Return the serialized bytes of each host, cut to `size` bytes."""
        return np.ascontiguousarray(self.data[:, :size]).view(f"V{size}")[:, 0]


def serialize_hosts(texts: Sequence[str | None]) -> Hosts:
    """Serialize hosts given as `ip:port`, keeping their order."""
    stored = [_serialize_host_text(text) for text in texts]
    data = np.frombuffer(b"".join(host.ljust(V6_SIZE, b"\0") for host in stored), np.uint8)
    return Hosts(data.reshape(-1, V6_SIZE), np.array([len(host) for host in stored], np.int64))


def _serialize_host_text(text: str | None) -> bytes:
    ip, _, port = (text or "").rpartition(":")
    number = parse_int32(port)
    try:
        host = b"" if number is None else serialize_host(Host.of(ip.removeprefix("[").removesuffix("]"), number))
    except (ValueError, struct.error):
        return b""
    assert len(host) in {0, V4_SIZE, V6_SIZE}
    return host


class RecordColumns:
    """Columns of a batch of `messages` as arrays, from which records are serialized."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self.starts = to_int64_array(batch.column("physical_offset"))
        self.sizes = to_int64_array(batch.column("size"))
        self._flags = to_int64_array(batch.column("sys_flag"))
        self._body_sizes = to_int64_array(batch.column("body_size"))
        self._born_sizes = np.where(self._flags & BORN_HOST_V6, V6_SIZE, V4_SIZE)
        self._store_sizes = np.where(self._flags & STORE_HOST_V6, V6_SIZE, V4_SIZE)
        self._topic_codes, topics = encode_strings(batch.column("topic"))
        self._topics = serialize_topics(topics)
        self._born_codes, born = encode_strings(batch.column("born_host"))
        self._store_codes, store = encode_strings(batch.column("store_host"))
        self._born_hosts, self._store_hosts = serialize_hosts(born), serialize_hosts(store)
        self._bodies = FIXED_SIZE - PROPERTIES_LENGTH.size + self._born_sizes + self._store_sizes
        self._topic_sizes = self._topics.lengths[self._topic_codes]
        entries = batch.column("properties")
        firsts = np.array(entries.offsets.to_numpy()[: len(entries) + 1], np.int64)
        self._firsts = np.stack([firsts[:-1], firsts[1:]], axis=1)
        self._names, self._name_starts = to_bytes_and_offsets(entries.keys)
        self._values, self._value_starts = to_bytes_and_offsets(entries.items)
        counts = firsts[1:] - firsts[:-1]
        self._text_sizes = (
            np.diff(self._name_starts[firsts]) + np.diff(self._value_starts[firsts]) + 2 * counts
        )  # fmt: skip
        used = self._bodies + self._body_sizes + self._topic_sizes + PROPERTIES_LENGTH.size
        self._rooms = self.sizes - used
        self._spare = self._rooms - self._text_sizes
        self._made: dict[int, bytes] = {}
        self._replaced = self._rows_with_replacement_chars(entries, firsts)

    def to_records(self, packs: Array) -> Records:
        """Return positions and sizes of the records to restore, after building properties that the lake changed.

        Args:
            packs: the number of the pack of each row.
        """
        places = self._batch.column("body_ref")
        frame_offsets, frame_lengths, offsets, lengths = (
            to_int64_array(pc.struct_field(places, name))
            for name in ("frame_offset", "frame_length", "offset", "length")
        )
        refusals = self._find_refusals()
        refusals[(refusals == 0) & (packs >= 0) & (lengths != self._body_sizes)] = Refusal.BODY_PLACE
        told = (self._spare == 0) | ((self._spare == -1) & (self._text_sizes > 0))
        by_rule = np.zeros(len(told), np.bool_)
        for row in np.flatnonzero(~told & (refusals == 0)).tolist():
            text, by_rule[row] = (None, False) if self._replaced[row] else self._serialize_properties(row)
            if text is None:
                refusals[row] = Refusal.PROPERTIES
            else:
                self._made[row] = text
        return Records(
            starts=self.starts,
            sizes=self.sizes,
            times=to_milliseconds(self._batch.column("store_timestamp")),
            refusals=refusals,
            made_up=((~told & ~by_rule) | self._replaced) & (refusals == 0),
            by_rule=by_rule & (refusals == 0),
            body_at=self.starts + self._bodies,
            body_sizes=self._body_sizes,
            crcs=to_int64_array(self._batch.column("body_crc")),
            packs=packs,
            frame_offsets=frame_offsets,
            frame_lengths=frame_lengths,
            offsets=offsets,
        )

    def _find_refusals(self) -> Array:
        refusals = np.zeros(len(self.starts), np.int64)
        born = self._born_hosts.sizes[self._born_codes] != self._born_sizes
        store = self._store_hosts.sizes[self._store_codes] != self._store_sizes
        refusals[(self._body_sizes < 0) | (self._rooms < 0) | (self._rooms > props.MAX_SIZE)] = Refusal.SIZE
        refusals[self._topic_sizes == 0] = Refusal.TOPIC
        refusals[born | store] = Refusal.HOST
        for name in NEEDED:
            column = self._batch.column(name)
            if column.null_count:
                refusals[column.is_null().to_numpy(zero_copy_only=False)] = Refusal.NO_VALUE
        return refusals

    def _rows_with_replacement_chars(self, entries: pa.MapArray, entry_ranges: Array) -> Array:
        """Return a mask of the rows whose topic or properties have replacement characters for invalid UTF-8."""
        replaced: Array = self._topics.replaced[self._topic_codes]
        for column in (entries.keys, entries.items):
            marked = np.flatnonzero(
                pc.match_substring(column, REPLACED).fill_null(False).to_numpy(zero_copy_only=False)
            )
            rows = np.searchsorted(entry_ranges, marked, side="right") - 1
            replaced[rows[rows < len(replaced)]] = True
        return replaced

    def _serialize_properties(self, row: int) -> tuple[bytes | None, bool]:
        """Serialize the properties of a row to exactly the size that they had in the original record.

        Returns:
            The bytes, None if the properties do not fit; and whether the broker would have written as many.
        """
        pairs: list[tuple[str, str]] = self._batch.column("properties")[row].as_py()
        own = self._batch.column("unique_key")[row].as_py()
        values = dict(pairs)
        if _CRC_OF_RECORD in values:
            return None, False
        if own is not None and values.get(props.UNIQ_KEY, own) != own:
            place = len(pairs) - (pairs[-1][0] == _CLUSTER)
            pairs = [(name, own if name == props.UNIQ_KEY else value) for name, value in pairs]
            pairs.insert(place, (props.UNIQ_KEY, values[props.UNIQ_KEY]))
        text = "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()
        spare = int(self._rooms[row]) - len(text)
        if spare < 0:
            return (text[:-1], True) if spare == -1 and text else (None, False)
        wait = f"{props.WAIT}\x01{values.get(props.WAIT)}\x02".encode()
        if props.WAIT in values and spare in {len(wait), len(wait) - 1}:
            return text + wait[:spare], True
        return text + (b" " * (spare - 1) + b"\x02" if spare else b""), not spare

    def write_records(self, segment_bytes: Array, base_offset: int, rows: Array) -> None:
        """Write the records of the given rows, without bodies, into the segment that begins at `base_offset`."""
        at = self.starts - base_offset
        for born in (V4_SIZE, V6_SIZE):
            for store in (V4_SIZE, V6_SIZE):
                chosen = rows[(self._born_sizes[rows] == born) & (self._store_sizes[rows] == store)]
                if len(chosen):
                    self._write_fixed_fields(segment_bytes, at, chosen, born, store)
        codes = self._topic_codes[rows]
        topics_at = at + self._bodies + self._body_sizes
        copy_spans(
            to_uint8_array(self._topics.data),
            self._topics.starts[codes],
            self._topics.lengths[codes],
            segment_bytes,
            topics_at[rows],
        )
        properties_at = topics_at + self._topic_sizes
        plain = rows[~np.isin(rows, list(self._made))] if self._made else rows
        write_properties(
            segment_bytes, properties_at[plain], self._rooms[plain], self._firsts[plain], self._names,
            self._name_starts,
            self._values, self._value_starts,
        )  # fmt: skip
        for row in self._made:
            begin = int(properties_at[row])
            data = PROPERTIES_LENGTH.pack(len(self._made[row])) + self._made[row]
            segment_bytes[begin : begin + len(data)] = np.frombuffer(data, np.uint8)

    def _write_fixed_fields(
        self, segment_bytes: Array, record_positions: Array, rows: Array, born_host_size: int, store_host_size: int
    ) -> None:
        """Write all fields before the body of the records whose hosts have the given sizes."""
        kind = np.dtype(
            [*HEAD.numpy_fields, ("born_host", f"V{born_host_size}"), *STORED.numpy_fields, ("store_host",
            f"V{store_host_size}"),
             *TAIL.numpy_fields]
        )  # fmt: skip
        block = np.zeros(len(rows), kind)
        block["total_size"] = self.sizes[rows]
        block["magic"] = self._topics.magics[self._topic_codes[rows]]
        for name in _HEAD_COLUMNS:
            block[name] = to_int64_array(self._batch.column(name))[rows]
        for name in ("born_timestamp", "store_timestamp"):
            block[name] = to_milliseconds(self._batch.column(name))[rows]
        block["born_host"] = _hosts_of_rows(self._born_hosts, self._born_codes[rows], born_host_size)
        block["store_host"] = _hosts_of_rows(self._store_hosts, self._store_codes[rows], store_host_size)
        for name in ("reconsume_times", "prepared_transaction_offset"):
            block[name] = to_int64_array(self._batch.column(name))[rows]
        block["body_length"] = self._body_sizes[rows]
        starts = np.arange(len(rows), dtype=np.int64) * kind.itemsize
        lengths = np.full(len(rows), kind.itemsize, np.int64)
        copy_spans(to_uint8_array(block.tobytes()), starts, lengths, segment_bytes, record_positions[rows])


def _hosts_of_rows(hosts: Hosts, codes: Array, size: int) -> Array:
    return hosts.truncated_host_bytes(size)[codes]


class RecordWriter:
    """Writes the records of one segment from rows of `messages`, without bodies.

    Args:
        out: uint8, the segment.
        base: physical offset of the start of the segment.

    Attributes:
        packs: names of the packs, by number.
    """

    def __init__(self, out: Array, base: int) -> None:
        self.packs: list[str] = []
        self._codes: dict[str, int] = {}
        self._out = out
        self._base = base
        self._records: list[Records] = []

    def write_rows(self, batch: pa.RecordBatch) -> int:
        """Write the records of rows, which may be in any order, and return their size in bytes.

        Args:
            batch: rows with the columns `COLUMNS`.

        Raises:
            UsageError: if a row is not within the segment.
        """
        rows = RecordColumns(batch)
        self._check_offsets_in_segment(rows)
        found = rows.to_records(self._pack_codes(batch.column("body_ref")))
        rows.write_records(self._out, self._base, np.flatnonzero(found.refusals == Refusal.NONE))
        self._records.append(found)
        return int(found.sizes.sum())

    def finish(self) -> Records:
        """Return all written records, ordered by physical offset.

        Raises:
            UsageError: if records overlap.
        """
        joined = Records.concatenate_parts(self._records)
        self._records.clear()
        records = joined.select_rows(np.argsort(joined.starts, kind="stable"))
        # An OPTIMIZE by another program at the same time as maintain's can leave a row twice.
        twice = np.flatnonzero(np.diff(records.starts) == 0) + 1
        if (
            len(twice)
            and (np.diff(records.crcs)[twice - 1] == 0).all()
            and (np.diff(records.sizes)[twice - 1] == 0).all()
        ):
            records = records.select_rows(np.delete(np.arange(len(records.starts)), twice))
        ends = records.starts + records.sizes
        if len(over := np.flatnonzero(ends[:-1] > records.starts[1:])):
            row = int(over[0])
            raise UsageError(
                f"the record at physical offset {records.starts[row]} ends at {ends[row]}: expected that the next one "
                f"begins there or later, found it at {records.starts[row + 1]}. The lake contains two logs under one "
                "name, or is damaged"
            )
        return records

    def _check_offsets_in_segment(self, rows: RecordColumns) -> None:
        end = self._base + len(self._out)
        outside = (rows.sizes < MIN_RECORD_SIZE) | (rows.starts < self._base) | (rows.sizes > end - rows.starts)
        if outside.any():
            row = int(outside.argmax())
            raise UsageError(
                f"the record at physical offset {rows.starts[row]} has {rows.sizes[row]} bytes: expected at least "
                f"{MIN_RECORD_SIZE} bytes, and an end within its segment, which ends at {end}. If the broker's "
                f"segments are not of {format_count(len(self._out), 'byte')}, give their size in its setting "
                "mappedFileSizeCommitLog"
            )

    def _pack_codes(self, body_refs: pa.Array) -> Array:
        codes, names = encode_strings(pc.struct_field(body_refs, "pack"))
        known = [-1 if name is None else self._pack_code(name) for name in names]
        return np.array(known, np.int64)[codes]

    def _pack_code(self, name: str) -> int:
        if name not in self._codes:
            self._codes[name] = len(self.packs)
            self.packs.append(name)
        return self._codes[name]
