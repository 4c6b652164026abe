"""Checks of the names in the arguments of a new replay: brokers, topics, groups, tags and queues that do not exist."""

from __future__ import annotations

from collections.abc import Iterator

from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.arguments.similar_names import print_warning
from commitlake.jobs.arguments.unknown_lake_names import (
    check_archived_brokers,
    unknown_queue_sentences,
    unknown_tag_sentences,
    unknown_topic_sentences,
    unknown_value_sentences,
)
from commitlake.jobs.replay.arguments import ReplayOptions
from commitlake.jobs.replay.message_source import MessageSource
from commitlake.jobs.replay.replay_management import PROG
from commitlake.pipelines.replay.origin_properties import original_topic_sql
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX

_IS_DEAD = f"starts_with(topic, '{DLQ_PREFIX}')"


def warn_of_unknown_names(arguments: ReplayOptions, lake: Lake, source: MessageSource) -> None:
    """Warn of requested names, such as topics and tags, that no message of the source has.

    The topics and queues of a store or of live topics are checked while they are read, and here only the others.

    Raises:
        JobError: if the lake has no such store.
    """
    if source.is_copied:
        for sentence in _unknown_names_in_copy(arguments, source):
            print_warning(PROG, sentence)
        return
    check_archived_brokers(lake, arguments.broker)
    for sentence in _unknown_names_in_lake(arguments, lake, source):
        print_warning(PROG, sentence)


def _unknown_names_in_copy(arguments: ReplayOptions, source: MessageSource) -> Iterator[str]:
    if arguments.dlq_of is not None:
        groups, sentence = [arguments.dlq_of], "there is no dead letter of the group {}"
        yield from unknown_value_sentences(source.table, "topic", groups, sentence, _IS_DEAD, DLQ_PREFIX)
    yield from unknown_value_sentences(source.table, "tags", arguments.tag, "no message that was read has the tag {}")


def _unknown_names_in_lake(arguments: ReplayOptions, lake: Lake, source: MessageSource) -> Iterator[str]:
    topics = list(arguments.topic)
    if arguments.all_copies:  # for some of these topics, only retries or dead letters may be archived
        origin = original_topic_sql(source.table)
        topics = [topic for topic in topics if unknown_value_sentences(source.table, origin, [topic], "{}")]
    unknown = unknown_topic_sentences(lake, source.table, topics)
    yield from unknown
    if arguments.dlq_of is not None:
        groups, sentence = [arguments.dlq_of], "the lake has no dead letter of the group {}"
        yield from unknown_value_sentences(source.table, "topic", groups, sentence, _IS_DEAD, DLQ_PREFIX)
    yield from unknown_tag_sentences(source.table, arguments.tag)
    if not unknown:
        for queue_id in arguments.queue:
            yield from unknown_queue_sentences(source.table, arguments.topic, [queue_id])
