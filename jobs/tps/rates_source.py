"""The tables from which rates are counted: those of a lake, or temporary ones made from a store's log."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from commitlake.jobs.arguments.lake_location import open_lake_argument
from commitlake.jobs.arguments.similar_names import print_warning
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.damaged_file_errors import explain_damaged_files
from commitlake.jobs.tps.arguments import TpsOptions
from commitlake.pipelines.tps.rates_query import MINUTES, CountedTable, round_time

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from commitlake.connectors.lake.lake import Lake
    from commitlake.connectors.reading.stores import Store
    from commitlake.pipelines.tps.coverage import Coverage

_BACKFILL = "'commitlake archive --lake LAKE --backfill topic_minutes' counts earlier messages"
_READ = ("messages", "topic_minutes", "archive_runs", "gaps", "store_config", "edges")
"""Tables of a lake that an answer may read."""


@dataclass(frozen=True)
class TpsSource:
    """Tables in which messages are counted, with the times that they cover.

    Attributes:
        option: the option that names the lake or the stores, `--lake` or `--store`, and its value.
        lake: the lake with the tables; temporary if stores are read.
        coverage: the times that the tables cover.
        stores: the stores whose logs were read; empty for an existing lake.
        table: the table that was made from these logs.
        damaged: ranges of each store that could not be read.
    """

    option: tuple[str, str]
    lake: Lake
    coverage: Coverage
    stores: Sequence[Store] = ()
    table: CountedTable = MINUTES
    damaged: Mapping[str, int] = field(default_factory=dict)

    def warn_of_unknown_names(self, topics: Sequence[str], tags: Sequence[str], queues: Sequence[int]) -> None:
        """Warn of topics, queues and tags that do not exist.

        For a store, tags are only searched in the messages read.
        """
        from commitlake.jobs.arguments.unknown_lake_names import (
            unknown_queue_sentences,
            unknown_tag_sentences,
            unknown_topic_sentences,
            unknown_value_sentences,
        )

        if self.stores:
            from commitlake.jobs.arguments.store_queues import unknown_store_name_sentences

            sentences = unknown_store_name_sentences(self.stores, topics, queues)
            read = self.lake.table(self.table.name)
            if not sentences and not (self.table is MINUTES and _has_unnamed_tags(read)):
                sentence = "no message that was read has the tag {}"
                sentences = unknown_value_sentences(read, self.table.groups["tag"], tags, sentence)
        else:
            messages = self.lake.table("messages")
            sentences = [*unknown_topic_sentences(self.lake, messages, topics), *unknown_tag_sentences(messages, tags)]
            if queues and not sentences:
                sentences = unknown_queue_sentences(messages, topics, queues)
        for sentence in sentences:
            print_warning("commitlake tps", sentence)


def _has_unnamed_tags(minutes_table: DeltaTable) -> bool:
    from commitlake.connectors.lake.reader import run_sql

    found = run_sql(minutes_table, MINUTES.name, f"SELECT 1 FROM {MINUTES.name} WHERE other_tags LIMIT 1")
    return any(batch.num_rows for batch in found)


@contextmanager
def open_tps_source(
    command: TpsOptions,
    table: CountedTable,
    comparison_distance: datetime.timedelta | None = None,
    extra_columns: Sequence[str] = (),
    *,
    reads_to_end: bool = False,
) -> Iterator[TpsSource]:
    """Open a lake's tables, or read a store's log into temporary tables.

    Args:
        table: the table that will be queried.
        comparison_distance: distance to the earlier time of a comparison, if any.
        extra_columns: columns of `messages` that are needed in addition to those for rates.
        reads_to_end: whether a store's log is read up to its end, regardless of `--to`.

    Raises:
        JobError: if a lake has no `topic_minutes`, or runs are missing there, or if there is no such broker.
        LakeError: if there is no lake.
        CommitLogError: if there is no store, or it cannot be read.
    """
    if command.store is not None:
        with tempfile.TemporaryDirectory(prefix="commitlake-tps-") as folder:
            end = None if reads_to_end else command.end
            yield _read_store_log(command, table, comparison_distance, extra_columns, end, folder)
        return
    lake = open_lake_argument(command).pin_versions()
    with explain_damaged_files(lake, _READ):
        yield _open_lake_tables(lake, command, table)


def _open_lake_tables(lake: Lake, command: TpsOptions, table: CountedTable) -> TpsSource:
    from commitlake.connectors.lake.follower_progress import check_is_up_to_date
    from commitlake.connectors.lake.lake import NoTableError
    from commitlake.jobs.arguments.unknown_lake_names import check_archived_brokers
    from commitlake.pipelines.topic_minutes.progress import count_uncounted_runs
    from commitlake.pipelines.tps.coverage import read_coverage

    lake.table("messages")
    check_is_up_to_date(lake, "topic_minutes")
    try:
        coverage = read_coverage(lake, command.broker)
    except NoTableError:
        raise JobError(
            f"the lake {lake.root} has no table 'topic_minutes' yet, from which rates are read", _BACKFILL
        ) from None
    check_archived_brokers(lake, command.broker)
    if table is MINUTES and coverage.spans and (lacking := count_uncounted_runs(lake)):
        raise JobError(
            f"the table topic_minutes lacks {lacking:,} archive runs, so its figures would be too small", _BACKFILL
        )
    return TpsSource(command.source_option, lake, coverage)


def _read_store_log(
    command: TpsOptions,
    table: CountedTable,
    comparison_distance: datetime.timedelta | None,
    extra_columns: Sequence[str],
    end_time: datetime.datetime | None,
    folder: str,
) -> TpsSource:
    from commitlake.connectors.lake.lake import Lake
    from commitlake.connectors.runtime.local_runner import ThreadRunner
    from commitlake.jobs.arguments.broker_name import find_named_stores
    from commitlake.jobs.arguments.store_layout import find_formats
    from commitlake.jobs.cli.progress import runner_progress
    from commitlake.pipelines.tps.rate_tables_of_stores import StoreLogs
    from commitlake.schemas.selection import Selection

    stores = find_named_stores(command.source_option[1], None, None, find_formats(command))
    stores = [store for store in stores if not command.broker or store.broker in command.broker]
    if not stores:
        raise JobError(f"--broker: {command.store} has no store named {', '.join(command.broker)}")
    unit = command.step or command.window or table.unit
    start = None if command.start is None else round_time(command.start, unit)
    wanted = Selection(
        topics=command.topic,
        queue_ids=command.queue,
        start=start - comparison_distance if start is not None and comparison_distance is not None else start,
        end=None if end_time is None else round_time(end_time, unit, rounds_up=True),
    )
    lake = Lake(folder)
    logs = StoreLogs(stores, wanted, extra_columns)
    runner = ThreadRunner()
    with runner_progress(runner, f"reading {command.store}", logs.size, quiet=command.quiet) as advance:
        read = logs.fill_table(table, lake, runner, advance)
    return TpsSource(command.source_option, lake, read.coverage, stores, table, read.damaged)
