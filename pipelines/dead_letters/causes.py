"""Dead letters of a lake, counted and grouped by cause.

A message becomes a dead letter in the topic `%DLQ%group` after its consumer group has failed on it the maximum number
of times. RocketMQ does not record why. A cause is therefore derived from the known facts: the group, the topic that the
message was sent to, its tag, the number of attempts, the text of one of the properties `EXCEPTION_PROPERTIES` if a
client sets it, and the shape of the body. JMQ keeps dead letters in its own database; its journal, and
therefore the lake, has none.

The shape of a body is the names and types of its JSON fields, without their values:

    {"id": 7, "customer": {"name": "A"}, "items": [{"sku": "x"}, {"sku": null}]}
    customer.name:string, id:number, items[].sku:null|string

Two bodies of the same shape usually fail in a consumer for the same reason. A shape is limited in size.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.lake import Lake, NoTableError, PinnedLake
from commitlake.connectors.lake.packs.pack_stores import PackStore
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import join_with_or, text_literal
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.partition_sizes import group_by_size
from commitlake.connectors.runtime.runner import Runner, results_in_order
from commitlake.pipelines.dead_letters.dead_letter_rows import (
    LetterBatch,
    dead_letter_condition,
    failure_reason_sql,
    is_replayed_sql,
    read_letters,
)
from commitlake.pipelines.replay.origin_properties import original_topic_sql
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, Kind
from commitlake.schemas.selection import ALL_MESSAGES, Selection
from commitlake.schemas.times import EPOCH

MAX_CAUSES = 1000
"""Maximum number of causes in an answer; the largest are kept."""
MAX_COUNTED_CAUSES = 5000
"""Maximum number of causes that are counted separately; letters of further causes only add to the total."""
MAX_HOURS = 500_000
"""Maximum number of hours counted, over all causes; letters of further hours only add to their cause."""
_LOG_PART = 1 << 30
"""Bytes of a log whose dead letters are read by one task."""
_TASK_LETTERS, _TASK_PARTS = 50_000, 64
"""Largest numbers of dead letters and of parts of logs that a task reads, if it reads several parts."""
SAMPLE_BODY_BYTES = 1000
"""Number of bytes kept from the body of a sample."""
_DIGEST_LENGTH = 10
_HOUR_US = 3_600_000_000
_MIN_TIME_US = -62_135_596_800_000_000  # the beginning of the year 1
_MAX_TIME_US = 253_402_300_799_999_999  # the end of the year 9999
_KEYS = ("topic", "origin", "tags", "reconsume_times", "reason", "shape")
_NULL, _NEXT, _OTHER = "\x00", "\x01", "\x02"
"""Separators in the text that identifies a cause: for null, between columns, and for the latter within a value."""
MAX_DEPTH = 5
MAX_PATHS = 40
MAX_ITEMS = 16
MAX_NAME_LENGTH = 40
MAX_BODY_BYTES = 256 << 10
"""Maximum size of a body that is parsed; a larger one is `(large)`."""
EMPTY, TEXT, BINARY, LARGE, NONE = "(empty)", "(text)", "(binary)", "(large)", "(none)"
_ID = re.compile(r"[0-9]+|[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|(?=.*[0-9])[0-9a-fA-F]{16,}|(?=.*[0-9]).{41,}")
_MAX_FIELDS = 10_000
"""Maximum number of fields read from a body: the shape of a larger body is that of its beginning."""


@dataclass(frozen=True, slots=True)
class SampleLetter:
    """Example of a dead letter with a given cause.

    Attributes:
        msg_id: its offset message id, for `commitlake query --id`.
        stored_at: when it was stored as a dead letter.
        keys: its business keys.
        body: the beginning of its body, as the producer sent it; None if there is none, or bodies were not read.
        body_size: size of the whole body in bytes; None if there is no body, or bodies were not read.
    """

    msg_id: str
    stored_at: datetime.datetime
    keys: Sequence[str]
    body: bytes | None = None
    body_size: int | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """Group of dead letters with the same cause.

    Attributes:
        group: The group that failed.
        topic: Topic that the messages were sent to; None if no property names it.
        tag: Their tag; None if they have none.
        attempts: Number of attempts to consume them, including the first.
        reason: Exception text from the client; None if there is none.
        messages: Number of dead letters.
        first: Time when the first of them was stored.
        last: Time when the last of them was stored.
        example: Message id of the newest one, for `commitlake query --id`.
        shape: Shape of their bodies; None if bodies were not read.
        digest: Short id of the cause, the same in all answers that read bodies, or in all that do not.
        replayed: Number of letters that a replay had sent and that failed again.
        hours: Number of letters stored in each hour.
        samples: The newest letters.
    """

    group: str
    topic: str | None
    tag: str | None
    attempts: int
    reason: str | None
    messages: int
    first: datetime.datetime
    last: datetime.datetime
    example: str
    shape: str | None = None
    digest: str = ""
    replayed: int = 0
    hours: Mapping[datetime.datetime, int] = field(default_factory=dict)
    samples: Sequence[SampleLetter] = ()


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Dead letters grouped by cause.

    Attributes:
        causes: The largest first; at most `MAX_CAUSES`.
        messages: Number of dead letters, including those of causes that are left out.
        groups: Number of dead letters of each consumer group, likewise.
        replayed: Number of dead letters that died again after a replay, likewise.
    """

    causes: Sequence[Cause]
    messages: int
    groups: Mapping[str, int] = field(default_factory=dict)
    replayed: int = 0

    @property
    def left_out_count(self) -> int:
        """Number of dead letters whose cause is not in `causes`."""
        return self.messages - sum(cause.messages for cause in self.causes)


@dataclass(frozen=True, slots=True)
class GroupCount:
    """Number of dead letters of one consumer group in one store."""

    broker: str
    group: str
    messages: int


def group_by_cause(
    lake: Lake, selection: Selection = ALL_MESSAGES, packs: PackStore | None = None, *, max_samples: int = 1
) -> DeadLetters:
    """Group the dead letters of a lake by cause.

    Args:
        selection: The dead letters to group; all by default.
        packs: The lake's bodies; None if the shape should not be part of a cause.
        max_samples: Number of dead letters kept for each cause, at least one.

    Raises:
        QueryError: The table cannot be read, or a condition is invalid.
        PackStoreError: The place of the packs cannot be reached.
    """
    table = lake.table("messages")
    return group_rows_by_cause(table, dead_letter_condition(table, selection), packs, max_samples=max_samples)


def group_rows_by_cause(table: DeltaTable, where: str, packs: PackStore | None, *, max_samples: int) -> DeadLetters:
    """Group the dead letters that match an SQL condition by cause: topic, tags, exception and shape of the body.

    Args:
        where: the condition, from `dead_letter_condition` or narrower.
        packs: like in `group_by_cause`.
        max_samples: like in `group_by_cause`.
    """
    return _count_by_cause(table, where, packs, max_samples).result()


def group_by_cause_in_tasks(
    lake: PinnedLake, where: str, packs: PackStore | None, runner: Runner, *, max_samples: int
) -> DeadLetters:
    """Group dead letters by cause, like `group_rows_by_cause`, in tasks that read a part of the logs each.

    Args:
        runner: runs the tasks.
    """
    tasks = [f"{where} AND ({part})" for part in _divide_by_log(lake.table("messages"), where)]
    counter = _CauseCounter(max(1, max_samples))
    for found in results_in_order(runner.run(partial(_count_in_task, lake, packs, max_samples), tasks)):
        counter.add_counter(found)
    return counter.result()


def _divide_by_log(table: DeltaTable, where: str) -> Iterator[str]:
    """Yield SQL conditions that divide the dead letters that match a condition by their places in the logs."""
    sql = (
        f"SELECT broker, physical_offset / {_LOG_PART} AS part, count(*) AS letters FROM messages WHERE {where} "
        "GROUP BY 1, 2 ORDER BY 1, 2"
    )
    parts = rows_to_dicts(run_sql(table, "messages", sql).read_all())
    conditions = [
        f"broker = {text_literal(part['broker'])} AND physical_offset >= {part['part'] * _LOG_PART} "
        f"AND physical_offset < {(part['part'] + 1) * _LOG_PART}"
        for part in parts
    ]
    for group in group_by_size(conditions, [part["letters"] for part in parts], _TASK_LETTERS, _TASK_PARTS):
        yield join_with_or(group)


def _count_in_task(lake: PinnedLake, packs: PackStore | None, max_samples: int, where: str) -> _CauseCounter:
    return _count_by_cause(lake.table("messages"), where, packs, max_samples)


def _count_by_cause(table: DeltaTable, where: str, packs: PackStore | None, max_samples: int) -> _CauseCounter:
    columns = [
        "topic", f"{original_topic_sql(table)} AS origin", "tags", "reconsume_times",
        f"{failure_reason_sql()} AS reason",
        f"{is_replayed_sql()} AS replayed", "store_timestamp", "physical_offset", "msg_id", "keys",
    ]  # fmt: skip
    counter = _CauseCounter(max(1, max_samples))
    for letters in read_letters(table, where, columns, packs):
        counter.add_letters(letters)
    return counter


def cause_texts(letters: LetterBatch) -> pa.StringArray:
    """Return the text that identifies the cause of each dead letter.

    Args:
        letters: `topic`, `origin`, `tags`, `reconsume_times` and `reason`, and the bodies if the shape is part of a
            cause.
    """
    rows = letters.rows
    if letters.stored is None:
        shapes = pa.nulls(rows.num_rows, pa.string())
    else:
        shapes = pa.array([describe_body_shape(letters.body(row).value) for row in range(rows.num_rows)], pa.string())
    named = rows.select(_KEYS[:-1]).append_column("shape", shapes)
    texts = [pc.fill_null(named.column(name).cast(pa.string()), _NULL).combine_chunks() for name in _KEYS]
    # Texts come from clients and may contain the separator; replaced, it cannot make two causes look the same.
    return pc.binary_join_element_wise(*(pc.replace_substring(text, _NEXT, _OTHER) for text in texts), _NEXT)


def cause_digest(cause_text: str) -> str:
    """Return the short id of a cause: the first digits of its text's SHA-256."""
    return hashlib.sha256(cause_text.encode()).hexdigest()[:_DIGEST_LENGTH]


@dataclass
class _CauseCount:
    """Counts of the dead letters of one cause so far, with the column values that identify the cause."""

    values: Mapping[str, Any]
    messages: int = 0
    replayed: int = 0
    first_us: int = 2**63 - 1
    last_us: int = -(2**63)
    hours: Counter[int] = field(default_factory=Counter)
    samples: list[tuple[int, int, SampleLetter]] = field(default_factory=list)


class _CauseCounter:
    """Counts dead letters by cause, in bounded memory."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._counts: dict[str, _CauseCount] = {}
        self._messages = 0
        self._groups: Counter[str] = Counter()
        self._replayed = 0
        self._hours = 0

    def add_letters(self, letters: LetterBatch) -> None:
        """Add a batch of dead letters to the counts."""
        rows = letters.rows
        self._messages += rows.num_rows
        for topic in pc.value_counts(rows.column("topic")).to_pylist():
            self._groups[topic["values"].removeprefix(DLQ_PREFIX)] += topic["counts"]
        coded = cause_texts(letters).dictionary_encode()
        names = coded.dictionary.to_pylist()
        codes = np.asarray(coded.indices).astype(np.int64)
        _, rows_of_codes = np.unique(codes, return_index=True)
        counts = [
            self._find_or_add_count(name, letters, row) for name, row in zip(names, rows_of_codes.tolist(), strict=True)
        ]
        times: Array = rows.column("store_timestamp").cast(pa.int64()).fill_null(0).to_numpy()
        replayed: Array = pc.fill_null(rows.column("replayed"), False).to_numpy(zero_copy_only=False)
        self._replayed += int(replayed.sum())
        first, last = np.full(len(names), 2**63 - 1), np.full(len(names), -(2**63))
        # `minimum.at`, not an indexed assignment, which would keep only the last row of each cause.
        np.minimum.at(first, codes, times)
        np.maximum.at(last, codes, times)
        totals, again = np.bincount(codes, minlength=len(names)), np.bincount(codes[replayed], minlength=len(names))
        columns = (totals.tolist(), again.tolist(), first.tolist(), last.tolist())
        for count, total, replays, first_us, last_us in zip(counts, *columns, strict=True):
            if count is not None:
                count.messages += total
                count.replayed += replays
                count.first_us = min(count.first_us, first_us)
                count.last_us = max(count.last_us, last_us)
        self._add_hourly_counts(counts, codes, times // _HOUR_US)
        for row in _newest_rows_by_code(codes, times, self._samples).tolist():
            found = counts[codes[row]]
            if found is not None:
                self._add_sample(found, int(times[row]), letters, row)

    def _find_or_add_count(self, name: str, letters: LetterBatch, row: int) -> _CauseCount | None:
        if name not in self._counts:
            if len(self._counts) >= MAX_COUNTED_CAUSES:
                return None
            values = letters.rows.select(_KEYS[:-1]).slice(row, 1).to_pylist()[0]
            shape = None if letters.stored is None else describe_body_shape(letters.body(row).value)
            self._counts[name] = _CauseCount(values | {"shape": shape})
        return self._counts[name]

    def _add_hourly_counts(self, counts: Sequence[_CauseCount | None], codes: Array, hours: Array) -> None:
        pairs, sizes = np.unique(np.stack([codes, hours]), axis=1, return_counts=True)
        for code, hour, size in zip(*pairs.tolist(), sizes.tolist(), strict=True):
            count = counts[code]
            if count is None or (hour not in count.hours and self._hours >= MAX_HOURS):
                continue
            self._hours += hour not in count.hours
            count.hours[hour] += size

    def _add_sample(self, count: _CauseCount, time_us: int, letters: LetterBatch, row: int) -> None:
        values = letters.rows.slice(row, 1).to_pylist()[0]
        order = (time_us, values["physical_offset"])
        if len(count.samples) == self._samples and order <= count.samples[-1][:2]:
            return
        body = letters.body(row).value
        sample = SampleLetter(
            values["msg_id"], _to_datetime(time_us), tuple(values["keys"] or ()),
            None if body is None else body[:SAMPLE_BODY_BYTES], None if body is None else len(body),
        )  # fmt: skip
        kept = sorted([*count.samples, (*order, sample)], key=lambda each: each[:2], reverse=True)
        count.samples = kept[: self._samples]

    def add_counter(self, other: _CauseCounter) -> None:
        """Add the counts of other dead letters."""
        self._messages += other._messages
        self._groups += other._groups
        self._replayed += other._replayed
        for name, more in other._counts.items():
            count = self._counts.get(name)
            if count is None:
                if len(self._counts) >= MAX_COUNTED_CAUSES:
                    continue
                count = self._counts[name] = _CauseCount(more.values)
            count.messages += more.messages
            count.replayed += more.replayed
            count.first_us, count.last_us = min(count.first_us, more.first_us), max(count.last_us, more.last_us)
            for hour, letters in more.hours.items():
                if hour in count.hours or self._hours < MAX_HOURS:
                    self._hours += hour not in count.hours
                    count.hours[hour] += letters
            kept = sorted([*count.samples, *more.samples], key=lambda each: each[:2], reverse=True)
            count.samples = kept[: self._samples]

    def result(self) -> DeadLetters:
        """Return the causes, the largest first."""
        ordered = sorted(self._counts.items(), key=lambda item: (-item[1].messages, item[0]))
        causes = [_to_cause(name, count) for name, count in ordered[:MAX_CAUSES]]
        return DeadLetters(causes, self._messages, self._groups, self._replayed)


def _newest_rows_by_code(codes: Array, times: Array, max_rows: int) -> Array:
    """Return the indexes of the newest rows of each cause code, at most `max_rows` for each code."""
    # By cause, the newest first within each, so that the rank in a cause is the distance to its first row.
    order = np.lexsort((-times, codes))
    sorted_codes = codes[order]
    starts = np.flatnonzero(np.append(True, sorted_codes[1:] != sorted_codes[:-1]))
    ranks = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    rows: Array = order[ranks < max_rows]
    return rows


def _to_cause(name: str, count: _CauseCount) -> Cause:
    values = count.values
    return Cause(
        group=values["topic"].removeprefix(DLQ_PREFIX),
        topic=values["origin"],
        tag=values["tags"],
        attempts=values["reconsume_times"],
        reason=values["reason"],
        messages=count.messages,
        first=_to_datetime(count.first_us),
        last=_to_datetime(count.last_us),
        example=count.samples[0][2].msg_id,
        shape=values["shape"],
        digest=cause_digest(name),
        replayed=count.replayed,
        hours={_to_datetime(hour * _HOUR_US): count.hours[hour] for hour in sorted(count.hours)},
        samples=tuple(sample for *_, sample in count.samples),
    )


def _to_datetime(time_us: int) -> datetime.datetime:
    """Convert microseconds since 1970 to a datetime; a time out of Python's range becomes the nearest possible one."""
    return EPOCH + datetime.timedelta(microseconds=min(max(time_us, _MIN_TIME_US), _MAX_TIME_US))


def count_dead_letters_by_group(lake: Lake) -> list[GroupCount]:
    """Count the dead letters of each group and store, from the small table `topic_minutes`."""
    try:
        table = lake.table("topic_minutes")
    except NoTableError:
        return []
    sql = (
        "SELECT broker, topic, sum(messages) AS messages FROM topic_minutes "
        f"WHERE kind = {text_literal(Kind.DLQ)} GROUP BY broker, topic ORDER BY broker, topic"
    )
    rows = rows_to_dicts(run_sql(table, "topic_minutes", sql).read_all())
    return [GroupCount(row["broker"], row["topic"].removeprefix(DLQ_PREFIX), row["messages"]) for row in rows]


def describe_body_shape(body: bytes | None) -> str:
    """Return the shape of a body: names and types of its JSON fields, or its kind, such as text or binary.

    Args:
        body: the body as the producer sent it; None if there is none.
    """
    if body is None:
        return NONE
    if not body:
        return EMPTY
    if len(body) > MAX_BODY_BYTES:
        return LARGE
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return BINARY
    # Numbers as zero: only their type matters, and Python refuses integers of more than 4,300 digits.
    try:
        value = json.loads(text, parse_int=_parse_number_as_zero, parse_float=_parse_number_as_zero)
    except (ValueError, RecursionError):
        return BINARY if "\0" in text else TEXT
    return _shape_of_json_body(value)


def _parse_number_as_zero(_: str) -> float:
    return 0.0


def _shape_of_json_body(value: object) -> str:
    types: dict[str, set[str]] = {}
    # Sets of types for each path, so that an array of equal items gives its path once.
    for looked, (path, kind) in enumerate(_json_field_types(value, "", 0)):
        if looked == _MAX_FIELDS:
            break
        types.setdefault(path, set()).add(kind)
    parts = [f"{path}:{'|'.join(sorted(types[path]))}".removeprefix(":") for path in sorted(types)]
    more = [f"and {len(parts) - MAX_PATHS} more"] if len(parts) > MAX_PATHS else []
    return ", ".join(parts[:MAX_PATHS] + more)


def _json_field_types(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield path and type of each scalar in a JSON value, and of empty or too deeply nested objects and arrays."""
    if isinstance(value, dict):
        if not value or depth == MAX_DEPTH:
            yield path, "object"
            return
        for name, part in value.items():
            yield from _json_field_types(part, f"{path}.{_field_name(name)}".removeprefix("."), depth + 1)
    elif isinstance(value, list):
        if not value or depth == MAX_DEPTH:
            yield path, "array"
            return
        for part in value[:MAX_ITEMS]:
            yield from _json_field_types(part, f"{path}[]", depth + 1)
    else:
        yield path, _json_type(value)


def _field_name(name: str) -> str:
    if _ID.fullmatch(name):
        return "*"
    name = name.encode(errors="backslashreplace").decode()  # JSON may have half a surrogate pair
    return name if len(name) <= MAX_NAME_LENGTH else name[:MAX_NAME_LENGTH] + "…"


def _json_type(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case _:
            return "number"
