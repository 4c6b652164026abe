"""Serializes rows of `messages` as records at their physical offsets, without bodies.

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

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays import Array
from commitlake.connectors.plain_arrays import bytes_of
from commitlake.pipelines.restore.arrow import coded, milliseconds, numbers, spans
from commitlake.pipelines.restore.found import NEEDED, Records, Refusal
from commitlake.pipelines.restore.kernel import place_properties, place_spans
from commitlake.pipelines.restore.parts import REPLACED, Hosts, stored_hosts, stored_topics
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.commitlog import FIXED_SIZE, HEAD, PROPERTIES_LENGTH, STORED, TAIL
from commitlake.schemas.layouts.rocketmq.hosts import V4_SIZE, V6_SIZE
from commitlake.schemas.layouts.rocketmq.sysflag import BORN_HOST_V6, STORE_HOST_V6

_HEAD_COLUMNS = ("queue_id", "flag", "queue_offset", "physical_offset", "sys_flag", "body_crc")
_CLUSTER = "CLUSTER"
_CRC_OF_RECORD = "__CRC32#"
"""Property with a CRC of the whole record, written by brokers with `enabledAppendPropCRC`."""


class TakenRows:
    """A batch as arrays."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self.starts = numbers(batch.column("physical_offset"))
        self.sizes = numbers(batch.column("size"))
        self._flags = numbers(batch.column("sys_flag"))
        self._body_sizes = numbers(batch.column("body_size"))
        self._born_sizes = np.where(self._flags & BORN_HOST_V6, V6_SIZE, V4_SIZE)
        self._store_sizes = np.where(self._flags & STORE_HOST_V6, V6_SIZE, V4_SIZE)
        self._topic_codes, topics = coded(batch.column("topic"))
        self._topics = stored_topics(topics)
        self._born_codes, born = coded(batch.column("born_host"))
        self._store_codes, store = coded(batch.column("store_host"))
        self._born_hosts, self._store_hosts = stored_hosts(born), stored_hosts(store)
        self._bodies = FIXED_SIZE - PROPERTIES_LENGTH.size + self._born_sizes + self._store_sizes
        self._topic_sizes = self._topics.lengths[self._topic_codes]
        entries = batch.column("properties")
        firsts = np.array(entries.offsets.to_numpy()[: len(entries) + 1], np.int64)
        self._firsts = np.stack([firsts[:-1], firsts[1:]], axis=1)
        self._names, self._name_starts = spans(entries.keys)
        self._values, self._value_starts = spans(entries.items)
        counts = firsts[1:] - firsts[:-1]
        self._text_sizes = (
            np.diff(self._name_starts[firsts]) + np.diff(self._value_starts[firsts]) + 2 * counts
        )  # fmt: skip
        used = self._bodies + self._body_sizes + self._topic_sizes + PROPERTIES_LENGTH.size
        self._rooms = self.sizes - used
        self._spare = self._rooms - self._text_sizes
        self._made: dict[int, bytes] = {}
        self._replaced = self._rows_replaced(entries, firsts)

    def records(self, packs: Array) -> Records:
        """Return facts about the rows, and compose the properties whose original bytes are not in the lake.

        Args:
            packs: the number of the pack of each row.
        """
        places = self._batch.column("body_ref")
        frame_offsets, frame_lengths, offsets, lengths = (
            numbers(pc.struct_field(places, name)) for name in ("frame_offset", "frame_length", "offset", "length")
        )
        refusals = self._refusals()
        refusals[(refusals == 0) & (packs >= 0) & (lengths != self._body_sizes)] = Refusal.BODY_PLACE
        told = (self._spare == 0) | ((self._spare == -1) & (self._text_sizes > 0))
        by_rule = np.zeros(len(told), np.bool_)
        for row in np.flatnonzero(~told & (refusals == 0)).tolist():
            text, by_rule[row] = (None, False) if self._replaced[row] else self._text_of(row)
            if text is None:
                refusals[row] = Refusal.PROPERTIES
            else:
                self._made[row] = text
        return Records(
            starts=self.starts,
            sizes=self.sizes,
            times=milliseconds(self._batch.column("store_timestamp")),
            refusals=refusals,
            made_up=((~told & ~by_rule) | self._replaced) & (refusals == 0),
            by_rule=by_rule & (refusals == 0),
            body_at=self.starts + self._bodies,
            body_sizes=self._body_sizes,
            crcs=numbers(self._batch.column("body_crc")),
            packs=packs,
            frame_offsets=frame_offsets,
            frame_lengths=frame_lengths,
            offsets=offsets,
        )

    def _refusals(self) -> Array:
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

    def _rows_replaced(self, entries: pa.MapArray, firsts: Array) -> Array:
        """Return which rows contain replacement characters for bytes that are not UTF-8."""
        replaced: Array = self._topics.replaced[self._topic_codes]
        for column in (entries.keys, entries.items):
            marked = np.flatnonzero(
                pc.match_substring(column, REPLACED).fill_null(False).to_numpy(zero_copy_only=False)
            )
            rows = np.searchsorted(firsts, marked, side="right") - 1
            replaced[rows[rows < len(replaced)]] = True
        return replaced

    def _text_of(self, row: int) -> tuple[bytes | None, bool]:
        """Serialize the properties to the number of bytes that they have in the record.

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

    def write(self, out: Array, base: int, rows: Array) -> None:
        """Write the records of these rows, without bodies, into a segment that begins at physical offset `base`."""
        at = self.starts - base
        for born in (V4_SIZE, V6_SIZE):
            for store in (V4_SIZE, V6_SIZE):
                chosen = rows[(self._born_sizes[rows] == born) & (self._store_sizes[rows] == store)]
                if len(chosen):
                    self._write_fixed(out, at, chosen, born, store)
        codes = self._topic_codes[rows]
        topics_at = at + self._bodies + self._body_sizes
        place_spans(
            bytes_of(self._topics.data), self._topics.starts[codes], self._topics.lengths[codes], out, topics_at[rows]
        )
        properties_at = topics_at + self._topic_sizes
        plain = rows[~np.isin(rows, list(self._made))] if self._made else rows
        place_properties(
            out, properties_at[plain], self._rooms[plain], self._firsts[plain], self._names, self._name_starts,
            self._values, self._value_starts,
        )  # fmt: skip
        for row in self._made:
            begin = int(properties_at[row])
            data = PROPERTIES_LENGTH.pack(len(self._made[row])) + self._made[row]
            out[begin : begin + len(data)] = np.frombuffer(data, np.uint8)

    def _write_fixed(self, out: Array, at: Array, rows: Array, born: int, store: int) -> None:
        """Write all fields before the body, for records with hosts of the given sizes."""
        kind = np.dtype(
            [*HEAD.numpy_fields, ("born_host", f"V{born}"), *STORED.numpy_fields, ("store_host", f"V{store}"),
             *TAIL.numpy_fields]
        )  # fmt: skip
        block = np.zeros(len(rows), kind)
        block["total_size"] = self.sizes[rows]
        block["magic"] = self._topics.magics[self._topic_codes[rows]]
        for name in _HEAD_COLUMNS:
            block[name] = numbers(self._batch.column(name))[rows]
        for name in ("born_timestamp", "store_timestamp"):
            block[name] = milliseconds(self._batch.column(name))[rows]
        block["born_host"] = _hosts_of(self._born_hosts, self._born_codes[rows], born)
        block["store_host"] = _hosts_of(self._store_hosts, self._store_codes[rows], store)
        for name in ("reconsume_times", "prepared_transaction_offset"):
            block[name] = numbers(self._batch.column(name))[rows]
        block["body_length"] = self._body_sizes[rows]
        starts = np.arange(len(rows), dtype=np.int64) * kind.itemsize
        lengths = np.full(len(rows), kind.itemsize, np.int64)
        place_spans(bytes_of(block.tobytes()), starts, lengths, out, at[rows])


def _hosts_of(hosts: Hosts, codes: Array, size: int) -> Array:
    return hosts.of_size(size)[codes]
