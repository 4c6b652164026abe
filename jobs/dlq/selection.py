"""The selection of dead letters by the arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.pack_stores import PackStore
from commitlake.jobs.arguments.lake_location import open_packs
from commitlake.jobs.arguments.runner import make_runner
from commitlake.jobs.arguments.similar_names import print_warning
from commitlake.jobs.arguments.unknown_lake_names import check_archived_brokers, unknown_value_sentences
from commitlake.jobs.cli.damaged_file_errors import explain_invalid_where
from commitlake.jobs.cli.lost_range_warnings import warn_of_lost_ranges
from commitlake.jobs.cli.sql_limits import enforce_limits, time_and_memory_limits
from commitlake.jobs.dlq.arguments import DlqOptions
from commitlake.pipelines.dead_letters.cause_conditions import cause_condition_sql, select_cause
from commitlake.pipelines.dead_letters.causes import Cause, DeadLetters, group_by_cause_in_tasks, group_rows_by_cause
from commitlake.pipelines.dead_letters.dead_letter_rows import count_letters, dead_letter_condition
from commitlake.pipelines.replay.origin_properties import original_topic_sql
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, Kind
from commitlake.schemas.selection import Selection


@dataclass(frozen=True, slots=True)
class ChosenDeadLetters:
    """The dead letters that the arguments select.

    Attributes:
        table: the lake's table `messages`.
        condition: SQL condition for the dead letters of all causes, even if one cause is chosen.
        packs: the store of the lake's bodies; None with `--no-shape`.
        letters: the dead letters grouped by cause; None if the grouping is not needed.
        cause: the chosen cause, with its number; None for all.
        missing: sentences on messages that the lake has lost, and that may be among the dead letters.
    """

    table: DeltaTable
    condition: str
    packs: PackStore | None
    letters: DeadLetters | None = None
    cause: tuple[int, Cause] | None = None
    missing: Sequence[str] = ()

    @property
    def exit_code(self) -> ExitCode:
        """Exit code of an action that has shown or exported the dead letters."""
        return ExitCode.DAMAGE if self.missing else ExitCode.OK

    def condition_of_cause(self) -> str:
        """Return an SQL condition for the dead letters of the chosen cause or, without one, of all causes."""
        if self.letters is None or self.cause is None:
            return self.condition
        return cause_condition_sql(self.table, self.condition, self.cause[1], self.letters.causes, self.packs)


def choose_dead_letters(arguments: DlqOptions, lake: Lake, *, max_samples_per_cause: int | None) -> ChosenDeadLetters:
    """Find the dead letters that the arguments select.

    Args:
        max_samples_per_cause: number of dead letters kept for each cause; None to count causes only if one of them is
            chosen.

    Raises:
        JobError: if `--where` is invalid, or a store is unknown.
        UsageError: if there is no such cause.
    """
    lake = lake.pin_versions()
    check_archived_brokers(lake, arguments.broker)
    table = lake.table("messages")
    condition = dead_letter_condition(table, arguments.selection)
    if arguments.where is not None:
        with (
            explain_invalid_where(arguments.where, lake),
            enforce_limits(time_and_memory_limits("dlq", arguments.where)),
        ):
            count_letters(table, condition)
    _warn_of_unknown_names(table, arguments.selection)
    missing = warn_of_lost_ranges("dlq", lake, arguments.broker, arguments.start, arguments.end)
    packs = None if arguments.no_shape else open_packs(lake)
    if max_samples_per_cause is None and arguments.cause is None:
        return ChosenDeadLetters(table, condition, packs, missing=missing)
    with explain_invalid_where(arguments.where, lake):
        max_samples = max_samples_per_cause or 0
        if arguments.is_on_spark:
            runner = make_runner(arguments, "dlq")
            letters = group_by_cause_in_tasks(lake, condition, packs, runner, max_samples=max_samples)
        else:
            letters = group_rows_by_cause(table, condition, packs, max_samples=max_samples)
    if arguments.cause is None:
        return ChosenDeadLetters(table, condition, packs, letters, missing=missing)
    cause = select_cause(letters.causes, arguments.cause)
    return ChosenDeadLetters(table, condition, packs, letters, (letters.causes.index(cause) + 1, cause), missing)


def _warn_of_unknown_names(table: DeltaTable, selection: Selection) -> None:
    """Warn of groups, topics and tags that no dead letter has."""
    are_dead = f"kind = '{Kind.DLQ}'"
    sentences = [
        *unknown_value_sentences(
            table, "topic", selection.groups, "the lake has no dead letter of the group {}", are_dead, DLQ_PREFIX
        ),
        *unknown_value_sentences(
            table, original_topic_sql(table), selection.topics, "the lake has no dead letter of the topic {}", are_dead
        ),
        *unknown_value_sentences(
            table, "tags", selection.tags, "the lake has no dead letter with the tag {}", are_dead
        ),
    ]
    for sentence in sentences:
        print_warning("commitlake dlq", sentence)
