"""Checks of names in a job's options: brokers, topics and queues that the lake does not have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deltalake import DeltaTable

from commitlake.connectors.lake.archive_commits import read_last_commit
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import text_literal
from commitlake.jobs.arguments.similar_names import (
    known_names_hint,
    print_warning,
    suggest_or_list_names,
    suggest_similar_name,
)
from commitlake.jobs.arguments.times import time_text
from commitlake.jobs.cli.command import JobError

_SHOWN = 8
_MAX_KNOWN = 10_000


def check_archived_brokers(lake: Lake, brokers: Iterable[str]) -> None:
    """Raise an error if a broker was never archived, because the answer would always be empty.

    Raises:
        JobError: with the nearest name of the lake.
    """
    last = read_last_commit(lake) if brokers else None
    if last is None:  # a table of another program, or no table
        return
    for broker in brokers:
        if broker not in last.stores:
            raise JobError(
                f"--broker: the lake has no store {broker!a}.{suggest_similar_name(broker, last.stores)}",
                known_names_hint(last.stores),
            )


def warn_of_unknown_broker(program: str, broker: str | None, stores: Iterable[str]) -> None:
    """Warn if the lake does not have the broker that the user names, but has others.

    Args:
        program: the command, for the warning.
        broker: the broker that the user names, if any.
        stores: the brokers of the lake.
    """
    known = list(stores)
    if known and broker is not None and broker not in known:
        print_warning(
            program,
            f"the lake has no store {broker!a}; none of its messages is archived.{suggest_similar_name(broker, known)}",
        )


def unknown_topic_sentences(lake: Lake, messages: DeltaTable, topics: Iterable[str]) -> list[str]:
    """Return a sentence for each topic that has no message in the lake."""
    found = []
    known: set[str] | None = None
    for topic in topics:
        sql = f"SELECT topic FROM messages WHERE topic = {text_literal(topic)} LIMIT 1"
        if any(batch.num_rows for batch in run_sql(messages, "messages", sql)):
            continue
        known = _read_lake_topics(lake, messages) if known is None else known
        found.append(f"the lake has no message of the topic {topic!a}.{suggest_or_list_names(topic, known)}")
    return found


def unknown_queue_sentences(messages: DeltaTable, topics: Sequence[str], queues: Sequence[int]) -> list[str]:
    """Return a sentence if none of the queue ids has a message in the given topics (in any topic, if none is given)."""
    condition = f"queue_id IN ({', '.join(map(str, queues))})"
    names = [text_literal(topic) for topic in topics]
    of_topics = f"topic IN ({', '.join(names)})" if names else "true"
    found = run_sql(messages, "messages", f"SELECT topic FROM messages WHERE {condition} AND {of_topics} LIMIT 1")
    if any(batch.num_rows for batch in found):
        return []
    sql = f"SELECT DISTINCT queue_id FROM messages WHERE {of_topics} ORDER BY queue_id LIMIT {_SHOWN + 1}"
    known = [str(number) for batch in run_sql(messages, "messages", sql) for number in batch.column(0).to_pylist()]
    if not known:
        return []
    of_what = " or ".join(f"{topic!a}" for topic in topics) if topics else "any topic"
    shown = ", ".join(known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
    asked = " or ".join(map(str, queues))
    return [f"the lake has no message in queue {asked} of {of_what}; it has messages in queues {shown}"]


def archived_time_sentence(messages: DeltaTable) -> str:
    """Return a sentence on the range of store times in the lake; empty if it has no messages."""
    sql = "SELECT min(store_timestamp) AS first, max(store_timestamp) AS last FROM messages"
    first, last = next(batch for batch in run_sql(messages, "messages", sql) if batch.num_rows).to_pylist()[0].values()
    return "" if first is None else f"the lake has messages stored from {time_text(first)} to {time_text(last)}"


def unknown_tag_sentences(messages: DeltaTable, tags: Iterable[str], sql_condition: str = "true") -> list[str]:
    """Return a sentence for each tag that occurs in no message, among the messages that meet an SQL condition."""
    return unknown_value_sentences(messages, "tags", tags, "the lake has no message with the tag {}", sql_condition)


def unknown_value_sentences(
    messages: DeltaTable,
    column: str,
    values: Iterable[str],
    sentence_template: str,
    sql_condition: str = "true",
    prefix: str = "",
) -> list[str]:
    """Return a sentence for each value that does not occur in a column, with a suggestion of a similar value.

    Args:
        column: SQL for the column.
        values: the values, without the prefix.
        sentence_template: the sentence, with "{}" for the value.
        sql_condition: SQL condition on the rows.
        prefix: text before each value in the column.
    """
    found = []
    known: list[str] | None = None
    for value in values:
        sql = f"SELECT 1 FROM messages WHERE {sql_condition} AND {column} = {text_literal(prefix + value)} LIMIT 1"
        if any(batch.num_rows for batch in run_sql(messages, "messages", sql)):
            continue
        if known is None:
            sql = f"SELECT DISTINCT {column} FROM messages WHERE {sql_condition} AND {column} IS NOT NULL "
            sql += f"LIMIT {_MAX_KNOWN}"
            batches = run_sql(messages, "messages", sql)
            known = [text.removeprefix(prefix) for batch in batches for text in batch.column(0).to_pylist()]
        found.append(f"{sentence_template.format(ascii(value))}.{suggest_or_list_names(value, known)}")
    return found


def _read_lake_topics(lake: Lake, messages: DeltaTable) -> set[str]:
    """Return the topics of a lake, read from the small table `profiles` if it exists, otherwise from `messages`."""
    try:
        table, name = lake.table("profiles"), "profiles"
    except LakeError:
        table, name = messages, "messages"
    batches = run_sql(table, name, f"SELECT DISTINCT topic FROM {name}")
    return {topic for batch in batches for topic in batch.column(0).to_pylist() if topic is not None}
