"""Conditions in SQL for dead letters of one cause, and for those that no replay has sent before.

A condition is fixed before anything is sent, and uses only columns of `messages`. The shape of a body is not a column,
and the record of sent letters is in another table. If either matters, the condition lists physical offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.lake.packs.pack_stores import PackStore
from commitlake.connectors.lake.reader import run_sql_over_tables
from commitlake.connectors.lake.sql import join_with_or, text_literal
from commitlake.pipelines.dead_letters.causes import Cause, cause_digest, cause_texts
from commitlake.pipelines.dead_letters.dead_letter_rows import failure_reason_sql, read_letters
from commitlake.pipelines.replay.origin_properties import original_topic_sql
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.integer_parsing import parse_int
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX
from commitlake.schemas.tables.replays import SendOutcome

MAX_LISTED = 50_000
"""Maximum number of offsets in a condition: the plan of a replay stores it, and each part of the replay uses it."""
_LIST_LENGTH = 1000
MIN_NAME_LENGTH = 4
"""Minimum length of the beginning of a cause's id: a shorter one may be meant as a number."""


def select_cause(causes: Sequence[Cause], cause_name: str) -> Cause:
    """Return the cause that a user named by its number or by the first characters of its id.

    Args:
        causes: the largest first.
        cause_name: number of the cause, from 1, or at least the first four characters of its digest.

    Raises:
        UsageError: if no cause or more than one matches.
    """
    if not causes:
        raise UsageError(f"--cause {cause_name}: no dead letter is selected, so there are no causes to choose from")
    number = parse_int(cause_name, 1, len(causes))
    if number is not None:
        return causes[number - 1]
    found = (
        [cause for cause in causes if cause.digest.startswith(cause_name)] if len(cause_name) >= MIN_NAME_LENGTH else []
    )
    if len(found) != 1:
        raise UsageError(
            f"--cause {cause_name}: expected the number of a cause from 1 to {len(causes)}, or at least "
            f"{MIN_NAME_LENGTH} characters with which the name of one cause begins, found {len(found) or 'none'}: "
            "'commitlake dlq' shows the causes"
        )
    return found[0]


def cause_condition_sql(
    table: DeltaTable, where: str, cause: Cause, causes: Sequence[Cause], packs: PackStore | None
) -> str:
    """Return an SQL condition for the dead letters of one cause, among those that meet `where`.

    Args:
        where: the condition with which the causes were counted.
        causes: all causes.
        packs: the lake's bodies; None if the causes were counted without them.

    Raises:
        UsageError: if only the bodies distinguish its dead letters from those of other causes, and there are too
            many.
    """
    narrowed = f"{where} AND {_cause_condition(table, cause)}"
    # The columns suffice unless another cause differs from this one by the shape of its bodies only.
    if packs is None or sum(_cause_values(one) == _cause_values(cause) for one in causes) == 1:
        return narrowed
    columns = [
        "topic",
        f"{original_topic_sql(table)} AS origin",
        "tags",
        "reconsume_times",
        f"{failure_reason_sql()} AS reason",
    ]
    places: dict[str, list[int]] = {}
    for letters in read_letters(table, narrowed, [*columns, "broker", "physical_offset"], packs):
        coded = cause_texts(letters).dictionary_encode()
        wanted = [cause_digest(name) == cause.digest for name in coded.dictionary.to_pylist()]
        rows = letters.rows.select(["broker", "physical_offset"]).filter(
            pc.take(pa.array(wanted, pa.bool_()), coded.indices)
        )
        for row in rows.to_pylist():
            places.setdefault(row["broker"], []).append(row["physical_offset"])
        # In the loop, so that an endless list is refused before it fills the memory.
        _check_list_length(places, f"the cause {cause.digest}")
    return f"{narrowed} AND {_offsets_sql(places)}"


def find_replayed_offsets(lake: Lake, table: DeltaTable, where: str) -> dict[str, dict[str, list[int]]]:
    """Return the physical offsets of the dead letters that replays have sent before, by replay id and store.

    Args:
        where: condition for the dead letters.
    """
    try:
        ledger = lake.table("replay_messages")
    except NoTableError:
        return {}
    sql = (
        f"SELECT replay_id, broker, physical_offset FROM replay_messages WHERE starts_with(topic, '{DLQ_PREFIX}') "
        f"AND outcome IN ('{SendOutcome.SENT}', '{SendOutcome.FOUND}')"
    )
    answer = run_sql_over_tables(
        {"messages": table, "replay_messages": ledger},
        # A replay that was repeated after a crash may list a message twice.
        f"SELECT DISTINCT sent.replay_id, sent.broker, sent.physical_offset FROM ({sql}) AS sent JOIN "
        f"(SELECT broker, physical_offset FROM messages WHERE {where}) AS chosen "
        "ON sent.broker = chosen.broker AND sent.physical_offset = chosen.physical_offset",
    )
    found: dict[str, dict[str, list[int]]] = {}
    for batch in answer:
        for row in batch.to_pylist():
            found.setdefault(row["replay_id"], {}).setdefault(row["broker"], []).append(row["physical_offset"])
    return found


def exclude_letters_sql(where: str, excluded_offsets: Iterable[Mapping[str, Sequence[int]]]) -> str:
    """Return the SQL condition `where`, extended so that it excludes the given dead letters.

    Args:
        where: the condition.
        excluded_offsets: physical offsets of these dead letters, by store.

    Raises:
        UsageError: if there are too many.
    """
    merged: dict[str, set[int]] = {}
    for one in excluded_offsets:
        for broker, offsets in one.items():
            merged.setdefault(broker, set()).update(offsets)
    if not merged:
        return where
    _check_list_length(merged, "dead letters redriven before")
    return f"{where} AND NOT {_offsets_sql({broker: list(offsets) for broker, offsets in merged.items()})}"


def _cause_values(cause: Cause) -> tuple[object, ...]:
    return (cause.group, cause.topic, cause.tag, cause.attempts, cause.reason)


def _cause_condition(table: DeltaTable, cause: Cause) -> str:
    texts = {
        "topic": DLQ_PREFIX + cause.group,
        original_topic_sql(table): cause.topic,
        "tags": cause.tag,
        failure_reason_sql(): cause.reason,
    }
    same = [f"{name} IS NULL" if text is None else f"{name} = {text_literal(text)}" for name, text in texts.items()]
    return " AND ".join([*same, f"reconsume_times = {cause.attempts}"])


def _check_list_length(offsets_by_store: Mapping[str, Iterable[int]], subject: str) -> None:
    count = sum(len(list(offsets)) for offsets in offsets_by_store.values())
    if count > MAX_LISTED:
        raise UsageError(
            f"{subject}: more than {MAX_LISTED:,} dead letters are selected, which are too many for one command: "
            "choose fewer at a time with --from and --to"
        )


def _offsets_sql(offsets_by_store: Mapping[str, Sequence[int]]) -> str:
    """Return an SQL condition for messages at the given physical offsets, made of several short IN lists.

    A list of 16,000 numbers overflows the engine's stack and ends the process. The ranges stop the engine from merging
    several lists into one.
    """
    parts = [
        f"(broker = {text_literal(broker)} AND physical_offset BETWEEN {offsets[0]} AND {offsets[-1]} "
        f"AND physical_offset IN ({', '.join(map(str, offsets))}))"
        for broker in sorted(offsets_by_store)
        for offsets in _divide_list(sorted(offsets_by_store[broker]), _LIST_LENGTH)
    ]
    return join_with_or(parts)


def _divide_list(offsets: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Yield consecutive parts of a list, each of `size` offsets except perhaps the last."""
    for start in range(0, len(offsets), size):
        yield offsets[start : start + size]
