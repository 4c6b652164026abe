"""Converts rows of `messages` to members: records that may be ends of steps, with data from their properties.

A member has a role, which is the action of the broker or client that stored the record:

    sent        sent by a producer to its own topic
    waiting     waits in a schedule topic or in the topic of timers
    cancelled   mark in the topic of timers that cancels another record
    delivered   copy of a record that has waited
    retry       copy that was put into a retry topic without delay after a consumer failed
    dead        a dead letter
    half        a half message
    committed   copy of a committed half message
    op          an op record
    given_up    copy of a half message that its producer did not finish

Only the stored topic shows whether a record waits: the properties of that time stay on all later copies.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import to_numpy_numbers
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import QueryError
from commitlake.connectors.lake.store_config import SETTING, read_store_config
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.verify.observed_delays import read_archived_delays
from commitlake.schemas.layouts.rocketmq.broker_conf import DEFAULT_DELAY_LEVELS_MS
from commitlake.schemas.layouts.rocketmq.properties import DELAY, ORIGIN_MESSAGE_ID, REAL_TOPIC, RETRY_TOPIC, TIMER_OUT
from commitlake.schemas.layouts.rocketmq.sysflag import TRANSACTION_MASK, TransactionType
from commitlake.schemas.layouts.rocketmq.topics import (
    CHECK_TIMES,
    DLQ_PREFIX,
    GIVEN_UP_TOPIC,
    POP_SEPARATORS,
    PREPARED_QUEUE_OFFSET,
    RETRY_PREFIX,
    SYSTEM_PREFIX,
    Kind,
)

TIME = pa.timestamp("us", "UTC")
KEYS_LEAF = "properties.key_value.key"
REPEATING = ("broker", "topic", "kind", "origin_topic", KEYS_LEAF)
"""Columns of `messages` that are read as dictionaries."""
COLUMNS = (
    "broker", "physical_offset", "topic", "queue_id", "queue_offset", "msg_id", "unique_key", "kind",
    "store_timestamp", "sys_flag", "reconsume_times", "prepared_transaction_offset", "properties", "origin_topic",
    "born_host", "body_size", "body_crc", "body_codec", "body_ref",
)  # fmt: skip
"""Columns of `messages` that are read."""
_ROLL_TIMES = "TIMER_ROLL_TIMES"
_CANCELS = "TIMER_DEL_UNIQKEY"
_BY_CLIENT = "RECONSUME_TIME"
REPLAY_ID = "REPLAY_ID"
_ORIGIN_BROKER = "ORIGIN_BROKER"
_ORIGIN_OFFSET = "ORIGIN_PHYSICAL_OFFSET"
_ORIGIN_TOPIC = "ORIGIN_TOPIC"
MARKING = frozenset({DELAY, TIMER_OUT, REPLAY_ID})
"""Properties, each of which gives a record a role."""
_US_OF_MS = 1000
_NUMBER = "^[0-9]{1,18}$"
_MAX_MS = 253_402_300_799_999
_LOGGER = logging.getLogger(__name__)


class Role(StrEnum):
    """Role of a record in the history of its message, such as sent, delayed, retried or dead."""

    SENT = "sent"
    WAITING = "waiting"
    CANCELLED = "cancelled"
    DELIVERED = "delivered"
    RETRY = "retry"
    DEAD = "dead"
    HALF = "half"
    COMMITTED = "committed"
    OP = "op"
    GIVEN_UP = "given_up"


MEMBERS = pa.schema([
    ("broker", pa.string()),
    ("physical_offset", pa.int64()),
    ("topic", pa.string()),
    ("queue_id", pa.int32()),
    ("queue_offset", pa.int64()),
    ("store_timestamp", TIME),
    ("unique_key", pa.string()),
    ("msg_id", pa.string()),
    ("kind", pa.string()),
    ("attempt", pa.int32()),           # failed consumptions before
    ("role", pa.string()),
    ("origin_topic", pa.string()),     # topic to which the message was sent
    ("next_topic", pa.string()),       # if it waits: its next topic
    ("by_timer", pa.bool_()),          # if it waits or has waited: by a timer, not by a level
    ("group", pa.string()),            # consumer group of a retry, of a record that waits for one, or of a dead letter
    ("origin_id", pa.string()),        # ORIGIN_MESSAGE_ID
    ("by_client", pa.bool_()),         # True if a consumer sent the copy itself, instead of the broker
    ("due", TIME),                     # if it waits: due time
    ("prepared_offset", pa.int64()),   # if committed: physical offset of its half message
    ("checks", pa.int64()),            # if half message: number of earlier checks with its producer
    ("is_committed", pa.bool_()),      # if half message seen by an earlier run: True if its copy exists
    ("first_half", pa.int64()),        # if half message that was stored again: queue offset of the first one
    ("rolls", pa.int64()),             # if it waits by a timer: how often it was stored again
    ("cancels", pa.string()),          # if mark: unique key of the record that it cancels
    ("replay_id", pa.string()),
    ("replay_broker", pa.string()),
    ("replay_offset", pa.int64()),
    ("replay_topic", pa.string()),
])  # fmt: skip
"""Columns of a table of members."""


class RowProperties:
    """Properties of many rows, looked up one name at a time.

    Args:
        column: maps of texts, in one chunk; names may be dictionary arrays.
    """

    def __init__(self, column: pa.MapArray) -> None:
        self._rows = len(column)
        self._offsets: Array = column.offsets.to_numpy()
        keys = column.keys
        encoded = keys if pa.types.is_dictionary(keys.type) else pc.dictionary_encode(keys)
        self._codes: Array = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        self._names: dict[str, list[int]] = {}
        for code, name in enumerate(encoded.dictionary.to_pylist()):
            self._names.setdefault(name, []).append(code)
        self._values = column.items

    def has_any_name_mask(self, names: Sequence[str]) -> Array:
        """Return a mask of the rows that have any of the given properties."""
        found: Array = np.zeros(self._rows, bool)
        found[self._rows_of_entries(self._entry_indexes(names))] = True
        return found

    def texts(self, name: str) -> pa.Array:
        """Return the last value of a property in each row; null if there is none."""
        places = self._entry_indexes([name])
        index = np.full(self._rows, -1, np.int64)
        index[self._rows_of_entries(places)] = places
        return self._values.take(pa.array(index, mask=index < 0)).cast(pa.string())

    def numbers(self, name: str) -> Array:
        """Return a property as int64; -1 if it is not a number of up to 18 digits."""
        texts = self.texts(name)
        is_number = pc.fill_null(pc.match_substring_regex(texts, _NUMBER), False)
        found: Array = to_numpy_numbers(pc.if_else(is_number, texts, None).cast(pa.int64()), null_value=-1)
        return found

    def _entry_indexes(self, names: Sequence[str]) -> Array:
        codes = [code for name in names for code in self._names.get(name, ())]
        if not codes:
            return np.empty(0, np.int64)
        places = np.flatnonzero(np.isin(self._codes, codes))
        found: Array = places[(places >= self._offsets[0]) & (places < self._offsets[-1])]
        return found

    def _rows_of_entries(self, entry_indexes: Array) -> Array:
        found: Array = np.searchsorted(self._offsets, entry_indexes, side="right") - 1
        return found


def special_row_mask(rows: pa.Table) -> Array:
    """Return a mask of the rows of `messages` that are special, such as retries, delayed messages and half messages."""
    kinds = _text_column(rows, "kind")
    special = pc.fill_null(pc.not_equal(kinds, str(Kind.NORMAL)), False).to_numpy(zero_copy_only=False)
    is_commit = _numeric_column(rows, "sys_flag") & TRANSACTION_MASK == TransactionType.COMMIT
    found: Array = (
        special | is_commit | RowProperties(_single_chunk(rows, "properties")).has_any_name_mask(sorted(MARKING))
    )
    return found


def ordinary_records(rows: pa.Table) -> pa.Table:
    """Convert rows of ordinary messages to records between which edges are searched."""
    known = _columns_of_rows(rows)
    known["role"] = pa.array(np.full(rows.num_rows, str(Role.SENT), object), pa.string())
    return _to_record_table(known, rows.num_rows)


def special_records(rows: pa.Table, delay_levels: DelayCache) -> pa.Table:
    """Convert special rows of `messages`, such as retries, to records between which edges are searched.

    Args:
        delay_levels: delay of each level, by broker.
    """
    if not rows.num_rows:
        return MEMBERS.empty_table()
    properties = RowProperties(_single_chunk(rows, "properties"))
    known = _columns_of_rows(rows)
    roles, by_timer = _find_roles(rows, known, properties)
    waits = roles == Role.WAITING
    next_topic = properties.texts(REAL_TOPIC)
    named = pc.if_else(pa.array(waits), next_topic, known["topic"])
    to_dead_letters = pc.fill_null(pc.starts_with(next_topic, DLQ_PREFIX), False)
    origins = pc.coalesce(properties.texts(RETRY_TOPIC), known["origin_topic"])
    known["origin_topic"] = pc.if_else(pc.and_(pa.array(waits), to_dead_letters), origins, known["origin_topic"])
    known |= {
        "role": pa.array(roles, pa.string()),
        "next_topic": pc.if_else(pa.array(waits), next_topic, None),
        "by_timer": pa.array(by_timer),
        "group": _consumer_groups(named, known["origin_topic"]),
        "origin_id": properties.texts(ORIGIN_MESSAGE_ID),
        "by_client": pa.array(properties.has_any_name_mask([_BY_CLIENT])),
        "due": _due_times(rows, known["broker"], properties, waits, by_timer, delay_levels),
        "prepared_offset": _single_chunk(rows, "prepared_transaction_offset").cast(pa.int64()),
        "checks": pa.array(np.maximum(properties.numbers(CHECK_TIMES), 0)),
        "first_half": _null_if_negative(properties.numbers(PREPARED_QUEUE_OFFSET)),
        "rolls": pa.array(np.maximum(properties.numbers(_ROLL_TIMES), 0)),
        "cancels": properties.texts(_CANCELS),
        "replay_id": properties.texts(REPLAY_ID),
        "replay_broker": properties.texts(_ORIGIN_BROKER),
        "replay_offset": _null_if_negative(properties.numbers(_ORIGIN_OFFSET)),
        "replay_topic": properties.texts(_ORIGIN_TOPIC),
    }
    return _to_record_table(known, rows.num_rows).filter(pa.array(roles != ""))


def _find_roles(rows: pa.Table, columns: dict[str, pa.Array], properties: RowProperties) -> tuple[Array, Array]:
    """Return the role of each row (empty for none), and whether a timer delays or has delayed the row."""
    kinds = np.array(columns["kind"].to_pylist(), object)
    topics, next_topics = columns["topic"], properties.texts(REAL_TOPIC)
    is_there = pc.fill_null(pc.equal(topics, next_topics), False).to_numpy(zero_copy_only=False)
    by_level = properties.numbers(DELAY) > 0
    by_timer = properties.has_any_name_mask([TIMER_OUT]) & ~by_level
    # Copies that a broker makes after a failure keep the flag.
    is_commit = (_numeric_column(rows, "sys_flag") & TRANSACTION_MASK == TransactionType.COMMIT) & (
        _numeric_column(rows, "reconsume_times") == 0
    )
    is_timer = kinds == Kind.TIMER
    own = (kinds == Kind.NORMAL) | (kinds == Kind.RETRY) | (kinds == Kind.DLQ)
    # The broker's own timers: with POP, it stores one for each delivery and each acknowledgement.
    is_internal = pc.fill_null(pc.starts_with(next_topics, SYSTEM_PREFIX), False).to_numpy(zero_copy_only=False)
    given_up = pc.fill_null(pc.equal(topics, GIVEN_UP_TOPIC), False).to_numpy(zero_copy_only=False)
    choices: list[tuple[Array, Role | None]] = [
        (is_timer & is_internal, None),
        (is_timer & properties.has_any_name_mask([_CANCELS]), Role.CANCELLED),
        (is_timer | (kinds == Kind.DELAY), Role.WAITING),
        (kinds == Kind.HALF, Role.HALF),
        (kinds == Kind.OP, Role.OP),
        (own & is_there & (by_level | by_timer), Role.DELIVERED),
        (kinds == Kind.DLQ, Role.DEAD),
        (kinds == Kind.RETRY, Role.RETRY),
        (given_up, Role.GIVEN_UP),
        ((kinds == Kind.NORMAL) & is_commit, Role.COMMITTED),
        (kinds == Kind.NORMAL, Role.SENT),
    ]
    roles = np.full(len(kinds), "", object)
    # The first condition that holds decides, so it is assigned last.
    for chosen, role in reversed(choices):
        roles[chosen] = str(role or "")
    return roles, np.where(roles == Role.DELIVERED, by_timer, is_timer)


def _due_times(
    rows: pa.Table,
    brokers: pa.Array,
    properties: RowProperties,
    is_delayed: Array,
    is_by_timer: Array,
    delay_levels: DelayCache,
) -> pa.Array:
    queues = _numeric_column(rows, "queue_id").astype(np.int64)
    delays = np.zeros(rows.num_rows, np.int64)
    by_broker = pc.dictionary_encode(brokers)
    codes = to_numpy_numbers(by_broker.indices, null_value=-1)
    chosen = is_delayed & ~is_by_timer
    for code in np.unique(codes[chosen & (codes >= 0)]).tolist():
        levels = np.array(delay_levels.delays_of(by_broker.dictionary[code].as_py()), np.int64)
        mine = chosen & (codes == code)
        delays[mine] = levels[np.clip(queues[mine], 0, len(levels) - 1)]
    by_level = _numeric_column(rows, "store_timestamp") + delays * _US_OF_MS
    timers = properties.numbers(TIMER_OUT)
    is_known = is_delayed & np.where(is_by_timer, (timers >= 0) & (timers <= _MAX_MS), True)
    due = np.where(is_by_timer, np.clip(timers, 0, _MAX_MS) * _US_OF_MS, by_level)
    return pa.array(due, pa.int64(), mask=~is_known).cast(TIME)


def _consumer_groups(names: pa.Array, origin_topics: pa.Array) -> pa.Array:
    """Return the consumer group of each retry or dead letter topic; null for other topics."""
    pairs = pa.table({"name": names, "origin": origin_topics})
    distinct = pairs.group_by(["name", "origin"]).aggregate([])
    found = [consumer_group_of_topic(row["name"], row["origin"]) for row in distinct.to_pylist()]
    distinct = distinct.append_column("group", pa.array(found, pa.string()))
    codes = {(row["name"], row["origin"]): row["group"] for row in distinct.to_pylist()}
    encoded = [pc.dictionary_encode(pairs.column(name).combine_chunks()) for name in ("name", "origin")]
    first, second = (each.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64) for each in encoded)
    both = (first + 1) * (len(encoded[1].dictionary) + 1) + second + 1
    unique, inverse = np.unique(both, return_inverse=True)
    width = len(encoded[1].dictionary) + 1
    texts = [[*each.dictionary.to_pylist(), None] for each in encoded]
    groups = [codes.get((texts[0][code // width - 1], texts[1][code % width - 1])) for code in unique.tolist()]
    return pa.array(groups, pa.string()).take(pa.array(inverse))


def consumer_group_of_topic(topic: str | None, origin_topic: str | None) -> str | None:
    """Return the consumer group of a retry or dead letter topic; None for any other topic.

    The retry topic of a POP consumer also has the name of the original topic.

    >>> topics = "%RETRY%shop", "%RETRY%shop+orders", "%DLQ%shop", "orders"
    >>> [consumer_group_of_topic(topic, "orders") for topic in topics]
    ['shop', 'shop', 'shop', None]
    """
    if topic is None:
        return None
    if topic.startswith(DLQ_PREFIX):
        return topic.removeprefix(DLQ_PREFIX)
    if not topic.startswith(RETRY_PREFIX):
        return None
    group = topic.removeprefix(RETRY_PREFIX)
    for separator in POP_SEPARATORS:
        if origin_topic and group.endswith(separator + origin_topic):
            return group.removesuffix(separator + origin_topic)
    return group


def _columns_of_rows(rows: pa.Table) -> dict[str, pa.Array]:
    return {
        "broker": _text_column(rows, "broker"),
        "physical_offset": _single_chunk(rows, "physical_offset"),
        "topic": _text_column(rows, "topic"),
        "queue_id": _single_chunk(rows, "queue_id"),
        "queue_offset": _single_chunk(rows, "queue_offset"),
        "store_timestamp": _single_chunk(rows, "store_timestamp").cast(TIME),
        "unique_key": _text_column(rows, "unique_key"),
        "msg_id": _text_column(rows, "msg_id"),
        "kind": _text_column(rows, "kind"),
        "attempt": _single_chunk(rows, "reconsume_times"),
        "origin_topic": _text_column(rows, "origin_topic"),
    }


def _to_record_table(known_columns: dict[str, pa.Array], row_count: int) -> pa.Table:
    columns = [
        known_columns[field.name].cast(field.type) if field.name in known_columns else pa.nulls(row_count, field.type)
        for field in MEMBERS
    ]
    return pa.table(columns, schema=MEMBERS)


def _single_chunk(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.combine_chunks() if column.num_chunks else pa.array([], column.type)


def _text_column(rows: pa.Table, name: str) -> pa.Array:
    column = _single_chunk(rows, name)
    return column.dictionary_decode().cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _numeric_column(rows: pa.Table, name: str) -> Array:
    return to_numpy_numbers(_single_chunk(rows, name))


def _null_if_negative(numbers: Array) -> pa.Array:
    return pa.array(numbers, pa.int64(), mask=numbers < 0)


class DelayCache:
    """Cache of brokers' delay levels in `store_config`, which are read when first needed.

    Args:
        lake: The lake. If it has no such table, every broker has RocketMQ's default levels.
    """

    def __init__(self, lake: Lake | None = None) -> None:
        self._lake = lake
        self._known: dict[str, Sequence[int]] = {}

    def delays_of(self, broker: str) -> Sequence[int]:
        """Return the delays of levels 1, 2, 3, … in milliseconds.

        A level that the table does not have has the default delay. If the table is damaged, all levels have it, and
        there is a warning.
        """
        if broker not in self._known:
            self._known[broker] = self._read_delays(broker) or DEFAULT_DELAY_LEVELS_MS
        return self._known[broker]

    def _read_delays(self, broker: str) -> Sequence[int] | None:
        if self._lake is None:
            return None
        try:
            return read_archived_delays(read_store_config(self._lake, broker).values_of_kind(SETTING))
        except QueryError as error:
            _LOGGER.warning(
                "store_config of %s cannot be read: %s; delayed messages of broker %s are taken to be due by "
                "RocketMQ's default delay levels. 'commitlake maintain --repair' takes damaged files out",
                self._lake.root,
                error,
                broker,
            )
            return None
