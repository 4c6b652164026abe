"""Selection of messages by the options of `replay`, and warnings of names in them that no message has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import in_condition, text_literal
from commitlake.jobs.arguments.keys_file import read_keys
from commitlake.jobs.arguments.similar_names import known_names_hint, print_warning, suggest_similar_name
from commitlake.jobs.arguments.unknown_lake_names import (
    check_archived_brokers,
    unknown_queue_sentences,
    unknown_tag_sentences,
    unknown_topic_sentences,
    unknown_value_sentences,
)
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.replay.arguments import ReplayOptions
from commitlake.jobs.replay.message_source import MessageSource, archived_store_names
from commitlake.jobs.replay.replay_management import PROG
from commitlake.pipelines.replay.errors import UnknownGroupError
from commitlake.pipelines.replay.groups.not_consumed_messages import NotConsumed
from commitlake.pipelines.replay.origin_properties import original_topic_sql
from commitlake.pipelines.replay.selection import SENDABLE, selection_condition
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, Kind, is_system_group, kind_of

_MAX_KEYS = 10_000
_IS_DEAD = f"starts_with(topic, '{DLQ_PREFIX}')"


@dataclass(frozen=True, slots=True)
class SelectedMessages:
    """Condition that selects the messages of a replay.

    Attributes:
        condition: SQL condition for the rows of the selected messages.
        not_consumed: with `--not-consumed-by`, the first selected offset of each queue; otherwise None.
        with_replayed: condition without the exclusion of messages that earlier replays have sent; None if
            `selection_condition` does not exclude them.
    """

    condition: str
    not_consumed: NotConsumed | None = None
    with_replayed: str | None = None


def select_messages(arguments: ReplayOptions, lake: Lake, source: MessageSource) -> SelectedMessages:
    """Return the condition for the messages that the options select.

    Raises:
        JobError: if a file of keys cannot be read, or has too many keys.
        ReplayError: if the selected messages cannot be sent.
    """
    not_consumed = None
    if arguments.not_consumed_by is not None:
        not_consumed = _find_not_consumed_messages(arguments, arguments.not_consumed_by, lake, source)
    keys_of_file = [] if arguments.keys_file is None else sorted(read_keys(arguments.keys_file, _MAX_KEYS))
    wanted = replace(
        arguments.selection,
        kinds=SENDABLE if arguments.all_copies else (),
        keys=[*arguments.key, *keys_of_file],
        groups=() if arguments.dlq_of is None else (arguments.dlq_of,),
    )
    origin = original_topic_sql(source.table) if arguments.all_copies else None
    chosen = partial(selection_condition, wanted, not_consumed=not_consumed, origin_topic_sql=origin)
    if arguments.include_replayed:
        return SelectedMessages(chosen(includes_replayed=True), not_consumed)
    return SelectedMessages(chosen(), not_consumed, chosen(includes_replayed=True))


def _find_not_consumed_messages(arguments: ReplayOptions, group: str, lake: Lake, source: MessageSource) -> NotConsumed:
    wanted = set(arguments.topic)

    def is_selected_topic(topic: str) -> bool:
        kind = kind_of(topic)
        is_copy = arguments.all_copies and kind in SENDABLE and kind is not Kind.NORMAL
        return topic in wanted or is_copy or (not wanted and kind is Kind.NORMAL)

    try:
        found = source.not_consumed(arguments, group, is_selected_topic)
    except UnknownGroupError as error:
        known = source.offsets(arguments.broker or ([] if source.is_copied else archived_store_names(lake))).groups
        groups = [name for name in known if not is_system_group(name)]
        raise JobError(f"{error}.{suggest_similar_name(group, groups)}", known_names_hint(groups)) from None
    # A topic without any message is reported as unknown.
    lacking = [] if arguments.all_copies else _topics_with_messages(source, sorted(wanted - found.topic_names))
    for sentence in [
        *found.warnings,
        *(f"the group {group} is not known to consume {topic}: none of its messages is chosen" for topic in lacking),
    ]:
        print_warning(PROG, sentence)
    return found


def _topics_with_messages(source: MessageSource, topics: Sequence[str]) -> list[str]:
    """Return those of the given topics that have messages in the source."""
    if not topics:
        return []
    sql = f"SELECT DISTINCT topic FROM messages WHERE {in_condition('topic', map(text_literal, topics))}"
    return sorted(row["topic"] for row in run_sql(source.table, "messages", sql).read_all().to_pylist())


def warn_of_unknown_names(arguments: ReplayOptions, lake: Lake, source: MessageSource) -> None:
    """Warn of requested names, such as topics and tags, that no message of the source has.

    The topics and queues of a store or of live topics are checked while they are read, and here only the others.

    Raises:
        JobError: if the lake has no such store.
    """
    if not source.is_copied:
        check_archived_brokers(lake, arguments.broker)
    for sentence in _unknown_name_sentences(arguments, lake, source):
        print_warning(PROG, sentence)


def _unknown_name_sentences(arguments: ReplayOptions, lake: Lake, source: MessageSource) -> Iterator[str]:
    table, unknown = source.table, [] if source.is_copied else _unknown_topic_sentences(arguments, lake, source)
    yield from unknown
    if arguments.dlq_of is not None:
        sentence = f"{'there is' if source.is_copied else 'the lake has'} no dead letter of the group {{}}"
        yield from unknown_value_sentences(table, "topic", [arguments.dlq_of], sentence, _IS_DEAD, DLQ_PREFIX)
    if source.is_copied:
        yield from unknown_value_sentences(table, "tags", arguments.tag, "no message that was read has the tag {}")
        return
    yield from unknown_tag_sentences(table, arguments.tag)
    if not unknown:
        for queue_id in arguments.queue:
            yield from unknown_queue_sentences(table, arguments.topic, [queue_id])


def _unknown_topic_sentences(arguments: ReplayOptions, lake: Lake, source: MessageSource) -> list[str]:
    topics = list(arguments.topic)
    if arguments.all_copies:  # for some of these topics, only retries or dead letters may be archived
        origin = original_topic_sql(source.table)
        topics = [topic for topic in topics if unknown_value_sentences(source.table, origin, [topic], "{}")]
    return unknown_topic_sentences(lake, source.table, topics)
