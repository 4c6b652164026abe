"""Conversion of columns to messages that can be sent, without a Python object per row.

| column | type | meaning |
| --- | --- | --- |
| body | binary | required; at least one byte |
| topic | string | topic to send to; required unless one topic is given for all rows |
| tags | string | one tag |
| keys | array<string> | business keys, without blanks |
| properties | map<string,string> | the application's own; those that brokers set on each message are left out, and |
| | | RocketMQ's other properties are refused, except TAGS, KEYS, UNIQ_KEY and WAIT |
| unique_key | string | the message's id; created if it is neither here nor in `properties` |
| flag | int | the application's own number |
| delay_level | int | 1 to 18; 0 or null for none |
| deliver_timestamp | timestamp | 5.x: delivery time |
| target_broker, target_queue_id | string, int | the queue; null for any queue of the topic |
| body_codec | string | compression of `body`, if rows have bodies as they were stored |

A column `tags`, `keys` or `unique_key` overrides the same value in `properties`. A fault in a row is an error of that
row only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.rocketmq.errors import InvalidMessageError
from commitlake.connectors.rocketmq.producers.messages import (
    DEFAULT_MAX_BODY_BYTES,
    MAX_DELAY_LEVEL,
    NOT_FOR_SENDING,
    RESERVED_PROPERTIES,
    SET_BY_BROKERS,
    TIMER_DELIVER_MS,
    check_topic,
)
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import INNER_BASE, INNER_NUM
from commitlake.schemas.layouts.rocketmq.sysflag import BodyCodec, compression_bits
from commitlake.schemas.layouts.rocketmq.topics import RETRY_PREFIX, Kind, kind_of
from commitlake.schemas.remoting.batch import ITEM, MIN_ITEM_SIZE

_TEXT, _BYTES = pa.large_string(), pa.large_binary()
TYPES: dict[str, pa.DataType] = {
    "body": _BYTES,
    "topic": _TEXT,
    "tags": _TEXT,
    "keys": pa.list_(pa.string()),
    "properties": pa.map_(pa.string(), pa.string()),
    "unique_key": _TEXT,
    "flag": pa.int32(),
    "delay_level": pa.int32(),
    "deliver_timestamp": pa.timestamp("ms", tz="UTC"),
    "target_broker": _TEXT,
    "target_queue_id": pa.int32(),
    "body_codec": _TEXT,
}
_ALLOWED = (props.TAGS, props.KEYS, props.UNIQ_KEY, props.WAIT)
_OVERRIDDEN_BY = {props.TAGS: "tags", props.KEYS: "keys", props.UNIQ_KEY: "unique_key"}
_REFUSED = sorted({INNER_NUM, INNER_BASE} | RESERVED_PROPERTIES - SET_BY_BROKERS - set(_ALLOWED))
_DELAYS = frozenset({props.DELAY, TIMER_DELIVER_MS})
_CODECS = [BodyCodec.NONE, BodyCodec.ZLIB, BodyCodec.LZ4, BodyCodec.ZSTD]
_ITEM_TYPE = np.dtype([(field.name, ">i4") for field in ITEM.fields])
assert _ITEM_TYPE.itemsize == ITEM.size


class RowTarget(NamedTuple):
    """The broker, topic and queue of rows; a broker or queue that is None means any."""

    topic: str
    broker_name: str | None
    queue_id: int | None


@dataclass(frozen=True, slots=True)
class RowSettings:
    """Settings for the conversion of rows to messages.

    Attributes:
        topic: topic for all rows; None to use the column.
        max_body_bytes: larger bodies are refused.
        is_stored: whether bodies are as they were stored, with their compression in `body_codec`. If None, rows whose
            `body_codec` names a codec are refused.
        has_system_topics: whether rows may go to topics of retries and dead letters, and to others of the broker's.
    """

    topic: str | None = None
    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES
    is_stored: bool | None = None
    has_system_topics: bool = False


@dataclass(frozen=True, eq=False)
class PreparedRows:
    """Rows after checks and encoding, as columns, in the order of the input.

    Attributes:
        items: each row as an item of a batch (see `schemas.remoting.batch`).
        bodies: body of each row.
        properties: in their stored form, as text.
        flags: int32, the applications' own.
        sys_flags: int32, compression of the bodies.
        targets: distinct targets of the rows.
        target_numbers: int32, index in `targets` for each row.
        is_single: bool, whether a row cannot be in a batch with others.
        errors: by row, why it must not be sent; other rows have no entry.
    """

    items: pa.Array
    bodies: pa.Array
    properties: pa.Array
    flags: Array
    sys_flags: Array
    targets: list[RowTarget]
    target_numbers: Array
    is_single: Array
    errors: dict[int, str]

    def unique_keys(self, row_numbers: Array) -> list[str]:
        """Return the UNIQ_KEY of the given rows."""
        return [found.get(props.UNIQ_KEY, "") for found in self._parse_properties(row_numbers)]

    def has_delay(self, row_numbers: Array) -> bool:
        """Return whether any of the given rows has a delay; the broker stores such messages in another topic first."""
        return any(not _DELAYS.isdisjoint(found) for found in self._parse_properties(row_numbers))

    def _parse_properties(self, row_numbers: Array) -> Iterator[dict[str, str]]:
        for text in self.properties.take(pa.array(row_numbers)).to_pylist():
            yield dict(props.parse_properties(text.encode()))


def prepare_rows(rows: pa.RecordBatch, settings: RowSettings, make_keys: Callable[[int], pa.Array]) -> PreparedRows:
    """Check rows, and return them encoded for sending.

    Args:
        rows: columns as in the module's table; others are ignored.
        settings: settings for all rows.
        make_keys: returns a number of new ids.

    Raises:
        InvalidMessageError: if a required column is missing or has another type.
    """
    return _RowPreparer(rows, settings, make_keys).prepare()


def check_columns(schema: pa.Schema, settings: RowSettings) -> None:
    """Check that the rows have the required columns, with matching types.

    Raises:
        InvalidMessageError: if a required column is missing, or a column has another type.
    """
    for name in (
        "body",
        *(("topic",) if settings.topic is None else ()),
        *(("body_codec",) if settings.is_stored else ()),
    ):
        if name not in schema.names:
            raise InvalidMessageError(f"rows: the column {name} is missing, found {', '.join(schema.names) or 'none'}")
    for name, wanted in TYPES.items():
        if name in schema.names and not _type_fits(schema.field(name).type, wanted):
            expected = str(wanted).removeprefix("large_")
            raise InvalidMessageError(f"column {name}: expected {expected}, found {schema.field(name).type}")


def _type_fits(actual: pa.DataType, expected: pa.DataType) -> bool:
    if pa.types.is_null(actual):
        return True
    if pa.types.is_map(expected) or pa.types.is_list(expected):
        return bool(pa.types.is_map(actual) if pa.types.is_map(expected) else pa.types.is_list(actual))
    if pa.types.is_timestamp(expected):
        return bool(pa.types.is_timestamp(actual))
    if pa.types.is_large_binary(expected):
        return bool(pa.types.is_binary(actual) or pa.types.is_large_binary(actual))
    if pa.types.is_large_string(expected):
        return bool(pa.types.is_string(actual) or pa.types.is_large_string(actual))
    return bool(pa.types.is_integer(actual) and actual.bit_width <= expected.bit_width)


class _RowPreparer:
    def __init__(self, rows: pa.RecordBatch, settings: RowSettings, make_keys: Callable[[int], pa.Array]) -> None:
        check_columns(rows.schema, settings)
        self._rows = rows
        self._count = rows.num_rows
        self._settings = settings
        self._make_keys = make_keys
        self._errors: dict[int, str] = {}

    def prepare(self) -> PreparedRows:
        bodies = self._check_bodies()
        targets, numbers = self._find_targets()
        sys_flags, delays = self._sys_flags(), self._delay_mask()
        properties = self._encode_properties()
        flags = self._integer_column("flag")
        items = _encode_batch_items(flags, bodies, properties)
        is_retry = np.array([target.topic.startswith(RETRY_PREFIX) for target in targets] or [False], np.bool_)
        # Brokers refuse delays and retries in a batch, and a batch has one sysFlag, so one compression, for all its
        # messages.
        is_single = is_retry[numbers] | delays | (sys_flags != 0)
        return PreparedRows(items, bodies, properties, flags, sys_flags, targets, numbers, is_single, self._errors)

    # --- columns ---

    def _column(self, name: str) -> pa.Array | None:
        """Return a column in its declared type; None if it is missing or all null."""
        if name not in self._rows.schema.names:
            return None
        column = self._rows.column(name)
        if column.null_count == self._count:
            return None
        wanted = TYPES[name]
        if pa.types.is_timestamp(wanted):
            # Brokers know milliseconds only, so finer times are cut off.
            return column.cast(wanted, safe=False)
        return column if pa.types.is_nested(wanted) else column.cast(wanted)

    def _integer_column(self, name: str) -> Array:
        column = self._column(name)
        if column is None:
            return np.zeros(self._count, np.int32)
        return np.asarray(pc.fill_null(column, 0).to_numpy(zero_copy_only=False), np.int32)

    def _refuse_rows(self, row_mask: pa.Array | Array, make_error: Callable[[int], str]) -> None:
        """Record an error for the rows of a mask."""
        mask = row_mask if isinstance(row_mask, np.ndarray) else row_mask.to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(mask).tolist():
            # The first error of a row stays: later ones may follow from it.
            self._errors.setdefault(row, make_error(row))

    def _check_bodies(self) -> pa.Array:
        column = self._column("body")
        bodies = pa.array([b""] * self._count, _BYTES) if column is None else pc.fill_null(column, b"")
        sizes = pc.binary_length(bodies).to_numpy()
        most = self._settings.max_body_bytes
        self._refuse_rows(sizes == 0, lambda _: "body: expected at least one byte, found none")
        self._refuse_rows(sizes > most, lambda row: f"body: expected at most {most} bytes, found {sizes[row]}")
        return bodies

    def _find_targets(self) -> tuple[list[RowTarget], Array]:
        topic = self._settings.topic
        topics = pa.repeat(pa.scalar(topic, _TEXT), self._count) if topic is not None else self._column("topic")
        if topics is None:
            topics = pa.nulls(self._count, _TEXT)
        brokers, queues = self._column("target_broker"), self._column("target_queue_id")
        table = pa.table(
            {
                "topic": pc.fill_null(topics, ""),
                "broker": pa.nulls(self._count, _TEXT) if brokers is None else brokers,
                "queue": pa.nulls(self._count, pa.int32()) if queues is None else queues,
            }
        )
        codes = np.zeros(self._count, np.int64)
        for column in table.columns:
            encoded = pc.dictionary_encode(column, null_encoding="encode").combine_chunks()
            codes = codes * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy()
            # Numbered again from 0 after each column, so that the products cannot exceed 64 bits.
            _, codes = np.unique(codes, return_inverse=True)
        _, first, numbers = np.unique(codes, return_index=True, return_inverse=True)
        chosen = table.take(pa.array(first, pa.int64())).to_pylist()
        targets = [RowTarget(row["topic"], row["broker"], row["queue"]) for row in chosen]
        for number, target in enumerate(targets):
            if (problem := _find_target_problem(target, self._settings)) is not None:
                self._refuse_rows(numbers == number, lambda _, problem=problem: problem)  # type: ignore[misc]
        return targets, numbers.astype(np.int32)

    def _sys_flags(self) -> Array:
        codecs = self._column("body_codec")
        if codecs is None:
            return np.zeros(self._count, np.int32)
        codecs = pc.fill_null(codecs, str(BodyCodec.NONE))
        if self._settings.is_stored is None:
            self._refuse_rows(
                pc.not_equal(codecs, str(BodyCodec.NONE)),
                lambda row: (
                    f"body: expected to be told whether it is still compressed with {codecs[row]} (the sink's "
                    "option body: stored) or not (decompressed)"
                ),
            )
        if not self._settings.is_stored:
            return np.zeros(self._count, np.int32)
        known = pa.array([str(codec) for codec in _CODECS], _TEXT)
        found = pc.fill_null(pc.index_in(codecs, known), -1).to_numpy()
        self._refuse_rows(found < 0, lambda row: f"body_codec: expected none, zlib, lz4 or zstd, found {codecs[row]}")
        bits = np.array([compression_bits(codec) for codec in _CODECS], np.int32)
        flags: Array = np.where(found < 0, 0, bits[found])
        return flags

    def _delay_mask(self) -> Array:
        """Return a mask of the rows with a delay."""
        levels = self._integer_column("delay_level")
        self._refuse_rows(
            (levels < 0) | (levels > MAX_DELAY_LEVEL),
            lambda row: f"delay_level: expected 0 to {MAX_DELAY_LEVEL}, found {levels[row]}",
        )
        times = self._column("deliver_timestamp")
        timed = np.zeros(self._count, np.bool_) if times is None else times.is_valid().to_numpy(zero_copy_only=False)
        self._refuse_rows(timed & (levels != 0), lambda _: "delay: expected a level or a time, found both")
        delayed: Array = timed | (levels != 0)
        return delayed

    # --- properties ---

    def _encode_properties(self) -> pa.Array:
        """Return all properties in their stored form; a row with values that cannot be stored gets an error."""
        own, has_unique_key, has_wait = self._encode_own_properties()
        levels, times = self._integer_column("delay_level"), self._column("deliver_timestamp")
        parts = [
            own,
            self._encode_property(props.TAGS, self._column("tags")),
            self._encode_property(props.KEYS, self._join_keys()),
        ]
        parts.append(self._encode_property(props.DELAY, pa.array(levels).cast(_TEXT), levels == 0))
        if times is not None:
            parts.append(self._encode_property(TIMER_DELIVER_MS, times.cast(pa.int64()).cast(_TEXT)))
        parts += [
            self._encode_property(props.UNIQ_KEY, self._unique_keys(has_unique_key), has_unique_key),
            self._encode_property(props.WAIT, pa.repeat(pa.scalar("true", _TEXT), self._count), has_wait),
        ]
        text = pc.binary_join_element_wise(*parts, pa.scalar("", _TEXT))
        sizes = pc.binary_length(text).to_numpy()
        self._refuse_rows(
            sizes > props.MAX_SIZE,
            lambda row: f"properties: expected at most {props.MAX_SIZE} bytes, found {sizes[row]}",
        )
        return text

    def _encode_property(self, name: str, values: pa.Array | None, excluded_rows: Array | None = None) -> pa.Array:
        """Return a property's stored form for each row, `name 0x01 value 0x02`; empty for a row without a value."""
        if values is None:
            return pa.repeat(pa.scalar("", _TEXT), self._count)
        self._check_separators(name, values)
        texts = pc.binary_join_element_wise(
            pa.scalar(f"{name}\x01", _TEXT), values, pa.scalar("\x02", _TEXT), pa.scalar("", _TEXT)
        )
        present = pc.fill_null(pc.greater(pc.binary_length(values), 0), False)
        if excluded_rows is not None:
            present = pc.and_(present, pa.array(~excluded_rows))
        return pc.if_else(present, texts, pa.scalar("", _TEXT))

    def _check_separators(self, name: str, values: pa.Array) -> None:
        for separator in ("\x01", "\x02"):
            found = pc.fill_null(pc.match_substring(values, separator), False)
            if pc.any(found).as_py():
                self._refuse_rows(found, lambda _: f"properties: expected no 0x01 or 0x02 in {name}, found one")

    def _join_keys(self) -> pa.Array | None:
        keys = self._column("keys")
        if keys is None:
            return None
        keys = keys.cast(pa.large_list(_TEXT))
        flat, rows = keys.flatten(), pc.list_parent_indices(keys).to_numpy()
        wrong = pc.fill_null(pc.or_(pc.equal(flat, ""), pc.match_substring(flat, props.KEY_SEPARATOR)), True)
        if pc.any(wrong).as_py():
            mask = np.zeros(self._count, np.bool_)
            mask[rows[wrong.to_numpy(zero_copy_only=False)]] = True
            self._refuse_rows(mask, lambda _: "keys: expected keys without blanks, and no empty one")
        return pc.binary_join(keys, pa.scalar(props.KEY_SEPARATOR, _TEXT))

    def _unique_keys(self, has_own_key: Array) -> pa.Array:
        given = self._column("unique_key")
        if given is not None and not given.null_count:
            return given
        if has_own_key.all():
            return pa.nulls(self._count, _TEXT)
        # For all rows, so that both columns can be merged; ids cost little.
        made = self._make_keys(self._count).cast(_TEXT)
        return made if given is None else pc.coalesce(given, made)

    def _encode_own_properties(self) -> tuple[pa.Array, Array, Array]:
        """Return the column `properties` in stored form, and masks of the rows that set UNIQ_KEY or WAIT in it."""
        nothing = np.zeros(self._count, np.bool_)
        column = self._column("properties")
        if column is None:
            return pa.repeat(pa.scalar("", _TEXT), self._count), nothing, nothing.copy()
        if not isinstance(column, pa.MapArray):
            raise InvalidMessageError(f"column properties: expected a map of texts to texts, found {column.type}")
        # `keys` and `items` of a slice of a map still have the entries of the whole map.
        edges = column.offsets.to_numpy()
        names = column.keys.slice(edges[0], edges[-1] - edges[0]).cast(_TEXT)
        values = column.items.slice(edges[0], edges[-1] - edges[0]).cast(_TEXT)
        lengths = np.diff(edges)
        rows = np.repeat(np.arange(self._count), lengths)
        # A null map may have entries nevertheless.
        kept = column.is_valid().to_numpy(zero_copy_only=False)[rows]
        kept &= ~_mask_of_names(names, SET_BY_BROKERS)
        overridden = [name for name, other in _OVERRIDDEN_BY.items() if other in self._rows.schema.names]
        kept &= ~_mask_of_names(names, overridden)
        self._refuse_invalid_properties(names, values, rows, kept)
        # The last argument is the separator.
        entries = pc.binary_join_element_wise(names, pc.fill_null(values, ""), pa.scalar("\x01", _TEXT))
        entries = pc.binary_join_element_wise(entries, pa.scalar("\x02", _TEXT), pa.scalar("", _TEXT))
        entries = entries.filter(pa.array(kept))
        offsets = np.zeros(self._count + 1, np.int64)
        np.cumsum(np.bincount(rows[kept], minlength=self._count), out=offsets[1:])
        text = pc.binary_join(pa.LargeListArray.from_arrays(offsets, entries), pa.scalar("", _TEXT))
        has_unique_key, has_wait = nothing, nothing.copy()
        has_unique_key[rows[kept & _mask_of_names(names, [props.UNIQ_KEY])]] = True
        has_wait[rows[kept & _mask_of_names(names, [props.WAIT])]] = True
        return text, has_unique_key, has_wait

    def _refuse_invalid_properties(
        self, names: pa.Array, values: pa.Array, row_numbers: Array, kept_mask: Array
    ) -> None:
        """Record an error for each row with a property that cannot be sent."""
        refused = kept_mask & _mask_of_names(names, _REFUSED)
        for entry in np.flatnonzero(refused).tolist():
            text = f"properties: expected names that RocketMQ does not use, found {names[entry]}"
            if names[entry].as_py() in (INNER_NUM, INNER_BASE):
                text = "body: expected one message, found an inner batch of several; 'commitlake replay' sends each"
            self._errors.setdefault(int(row_numbers[entry]), text)
        wrong = pc.or_(pc.equal(names, ""), pc.fill_null(pc.equal(values, ""), True))
        for separator in ("\x01", "\x02"):
            in_value = pc.fill_null(pc.match_substring(values, separator), False)
            wrong = pc.or_(wrong, pc.or_(pc.match_substring(names, separator), in_value))
        mask = np.zeros(self._count, np.bool_)
        mask[row_numbers[kept_mask & wrong.to_numpy(zero_copy_only=False)]] = True
        self._refuse_rows(mask, lambda _: "properties: expected names and values, and no 0x01 or 0x02 in them")


def _find_target_problem(target: RowTarget, settings: RowSettings) -> str | None:
    try:
        check_topic(target.topic)
    except InvalidMessageError as error:
        return str(error)
    if not settings.has_system_topics and (problem := system_topic_problem(target.topic)) is not None:
        return problem
    if target.topic in NOT_FOR_SENDING:
        return f"topic: expected a topic of an application, found the broker's own {target.topic}"
    if (target.broker_name is None) != (target.queue_id is None):
        return "target: expected both target_broker and target_queue_id, or neither"
    return None


def system_topic_problem(topic: str) -> str | None:
    """Return why rows must not be sent to a topic, which is the broker's own; None for other topics."""
    if kind_of(topic) is Kind.NORMAL:
        return None
    return f"topic: expected a topic of an application, found the broker's own {topic} (see the option systemTopics)"


def _mask_of_names(names: pa.Array, name_set: object) -> Array:
    found: Array = pc.is_in(names, pa.array(sorted(name_set), _TEXT)).to_numpy(zero_copy_only=False)  # type: ignore[call-overload]
    return found


def _encode_batch_items(flags: Array, bodies: pa.Array, properties: pa.Array) -> pa.Array:
    """Return each row encoded as an item of a batch message."""
    body_sizes, text_sizes = pc.binary_length(bodies).to_numpy(), pc.binary_length(properties).to_numpy()
    heads = np.zeros(len(flags), _ITEM_TYPE)
    heads["total_size"] = MIN_ITEM_SIZE + body_sizes + text_sizes
    heads["flag"] = flags
    heads["body_length"] = body_sizes
    # Longer texts are errors of their rows, which are not sent; only the number must not overflow.
    lengths = np.minimum(text_sizes, props.MAX_SIZE).astype(">i2")
    return pc.binary_join_element_wise(
        _to_bytes_column(heads), bodies, _to_bytes_column(lengths), properties.cast(_BYTES), pa.scalar(b"", _BYTES)
    )


def _to_bytes_column(values: Array) -> pa.Array:
    """Return the bytes of each array element as a binary column of fixed width."""
    offsets = np.arange(len(values) + 1, dtype=np.int64) * values.dtype.itemsize
    return pa.Array.from_buffers(_BYTES, len(values), [None, pa.py_buffer(offsets), pa.py_buffer(values.tobytes())])
