"""Measurement of the lag in the lake or the stores that a job's arguments name."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace

from commitlake.connectors.lake.archive_commits import read_last_commit
from commitlake.connectors.lake.lake import Lake, PinnedLake
from commitlake.connectors.reading.settings_files import BROKER_PLACEHOLDER
from commitlake.jobs.arguments.broker_conf import read_store_conf
from commitlake.jobs.arguments.broker_name import find_named_stores
from commitlake.jobs.arguments.lake_location import check_packs_location, open_lake_argument
from commitlake.jobs.arguments.similar_names import shorten_name_list, suggest_or_list_names
from commitlake.jobs.arguments.store_layout import find_formats
from commitlake.jobs.arguments.unknown_lake_names import check_archived_brokers
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.damaged_file_errors import explain_damaged_files
from commitlake.jobs.lag.arguments import LagArguments, LagGroupArguments
from commitlake.pipelines.lag.group_summaries import find_stalled_since
from commitlake.pipelines.lag.history import LagHistory, lag_history
from commitlake.pipelines.lag.messages_table import ArrowMessagesTable, MessagesTable, RunnerMessagesTable
from commitlake.pipelines.lag.store_lag import LagAnswer, Overrides, lag_of_lake, lag_of_store
from commitlake.pipelines.lag.subscription_filter import SubscriptionFilter
from commitlake.pipelines.lag.verdicts import NOT_MOVING
from commitlake.pipelines.snapshot.progress import GroupTopic
from commitlake.schemas.remoting.heartbeats import SQL92_EXPRESSION, TAG_EXPRESSION

_READ = ("messages", "consumer_offsets", "subscriptions", "store_config", "edges", "gaps", "topic_minutes")
"""Tables from which the lag in a lake is computed, and lost ranges are read."""


def measure_lag(
    arguments: LagArguments, group_arguments: LagGroupArguments | None = None, *, is_on_spark: bool = False
) -> LagAnswer:
    """Measure how far consumer groups are behind in the lake or the stores that the arguments name.

    Args:
        group_arguments: the chosen groups; None for all.
        is_on_spark: True to read the messages of a lake on Spark.

    Raises:
        JobError: A filter is invalid, or a broker is unknown.
        LakeError: There is no lake.
        CommitLogError: There is no store, or it cannot be read.
        QueryError: A table cannot be read.
    """
    asked = group_arguments or LagGroupArguments()
    wanted, brokers = asked.selection, asked.broker
    given = Overrides(_filters_by_group(asked.filter))
    if arguments.lake is not None:
        lake = open_lake_argument(arguments).pin_versions()
        check_archived_brokers(lake, brokers)
        delays = _delay_levels_by_broker(arguments.broker_conf, brokers or _archived_brokers(lake))
        check_packs_location(lake)
        given = replace(given, delay_levels_ms=delays, watch=arguments.watch)
        with explain_damaged_files(lake, _READ):
            return lag_of_lake(lake, asked.at, wanted, given, open_messages(lake, "lag", is_on_spark=is_on_spark))
    stores = find_named_stores(arguments.source_option[1], None, arguments.broker_conf, find_formats(arguments))
    stores = [store for store in stores if not brokers or store.broker in brokers]
    if not stores:
        raise JobError(f"--broker: {arguments.source_option[1]} has no store named {shorten_name_list(brokers)}")
    now = datetime.datetime.now(datetime.UTC)
    given = replace(
        given, delay_levels_ms=_delay_levels_by_broker(arguments.broker_conf, [store.broker for store in stores])
    )
    answers = [lag_of_store(store, now, wanted, given) for store in stores]
    return LagAnswer(
        [row for answer in answers for row in answer.rows],
        [sentence for answer in answers for sentence in answer.missing],
        {position for answer in answers for position in answer.known},
        [group for answer in answers for group in answer.broadcasting],
    )


def open_messages(lake: PinnedLake, job: str, *, is_on_spark: bool) -> MessagesTable:
    """Return the lake's messages, which are read by this process or on Spark.

    Args:
        lake: the lake.
        job: name of the job, for a new session.
        is_on_spark: True for Spark.

    Raises:
        JarsError: jars are needed and missing.
        JavaError: a JVM is needed and Java is missing.
        LakeError: there is no lake.
        UnavailableError: no server of Spark Connect answers, or no task runs on workers of other machines.
        UsageError: `SPARK_REMOTE` is wrong, or a package is missing here or there.
    """
    if not is_on_spark:
        return ArrowMessagesTable(lake.table("messages"), lake.packs)
    lake.table("messages")  # before a JVM starts: without a lake, this raises an error
    from commitlake.connectors.spark.runner import SparkRunner
    from commitlake.jobs.arguments.runner import get_spark_session

    return RunnerMessagesTable(lake, SparkRunner(get_spark_session(job)))


def measure_lag_history(
    lake: PinnedLake,
    group_arguments: LagGroupArguments,
    answer: LagAnswer,
    max_groups: int,
    *,
    is_on_spark: bool = False,
) -> LagHistory | None:
    """Return how far the worst groups were behind over time; None without a group.

    Args:
        lake: The lake that was measured.
        answer: Result of `measure_lag`.
        max_groups: The largest number of groups.
        is_on_spark: True to read the messages on Spark.

    Raises:
        QueryError: A table cannot be read.
    """
    groups = [group.group for group in answer.groups[:max_groups]]
    if not groups:
        return None
    until = max(row.as_of for row in answer.rows)
    brokers = sorted({row.broker for row in answer.rows})
    filters, topics = _filters_by_group(group_arguments.filter), group_arguments.topic
    with explain_damaged_files(lake, _READ):
        messages = open_messages(lake, "lag", is_on_spark=is_on_spark)
        return lag_history(lake, groups, until, brokers, filters, topics, messages)


def find_worst_group_stalled_since(lake: PinnedLake, answer: LagAnswer) -> datetime.datetime | None:
    """Return the time since which the worst group's offsets have not moved; None if they move, or there is no group.

    Args:
        lake: The lake that was measured.
        answer: Result of `measure_lag`.

    Raises:
        QueryError: A table cannot be read.
    """
    if not answer.groups or answer.groups[0].verdict not in NOT_MOVING:
        return None
    with explain_damaged_files(lake, _READ):
        return find_stalled_since(lake, answer.groups[0].worst_row)


def unknown_name_sentences(group_arguments: LagGroupArguments, answer: LagAnswer) -> list[str]:
    """Return a sentence for each requested group and topic of which no offset is known."""
    known = {
        name: {getattr(place, name) for places in (answer.known, answer.broadcasting, answer.rows) for place in places}
        for name in ("group", "topic")
    }
    return [
        f"--{name}: no offset of the {name} {asked!a} is known.{suggest_or_list_names(asked, names)}"
        for name, names in known.items()
        for asked in getattr(group_arguments, name)
        if names and asked not in names
    ]


def _archived_brokers(lake: Lake) -> list[str]:
    last = read_last_commit(lake)
    return [] if last is None else sorted(last.stores)


def _delay_levels_by_broker(conf_path: str | None, brokers: Sequence[str]) -> dict[str, Sequence[int]]:
    """Return the delay levels of each broker whose settings file sets them."""
    if conf_path is None:
        return {}
    if len(brokers) > 1 and BROKER_PLACEHOLDER not in conf_path:
        hint = f"use {BROKER_PLACEHOLDER} for the broker's name, or choose one with --broker"
        raise JobError(
            f"--broker-conf {conf_path} is one file, but there are several brokers, {shorten_name_list(brokers)}: "
            "expected a settings file for each",
            hint,
        )
    found = {broker: read_store_conf(conf_path, broker).delay_levels_ms for broker in brokers}
    return {broker: levels for broker, levels in found.items() if levels}


def _filters_by_group(filter_options: Sequence[tuple[str, str, str]]) -> dict[GroupTopic, SubscriptionFilter]:
    found = {}
    for group, topic, text in filter_options:
        is_sql = text.startswith("sql:")
        expression = text.removeprefix("sql:").strip()
        wanted = SubscriptionFilter.of(SQL92_EXPRESSION if is_sql else TAG_EXPRESSION, expression)
        if wanted.problem:
            raise JobError(f"--filter {group}@{topic}: {wanted.problem}")
        found[GroupTopic(group, topic)] = wanted
    return found
