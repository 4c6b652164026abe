"""The sides of an audit: a lake's messages at one moment, as the tables, packs, stores and HBase have them.

Each side is counted by tasks of a runner, in this process, on several threads, or on Spark. A task reads some data
files, some splits of a log, a salt of HBase's table, or the packs of one part.
"""

from __future__ import annotations

import datetime
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

import pyarrow as pa

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.formats.registry import ANY_FORMAT
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.lake.delta_log.versions import AddedFile, files_of_table
from commitlake.connectors.lake.erasures import FORM, NOTHING_ERASED, ErasedMessages
from commitlake.connectors.lake.lake import Lake, PinnedLake
from commitlake.connectors.lake.rows.table_rows import TableRows
from commitlake.connectors.log_format.format import Formats
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.options import Mode, ReadOptions
from commitlake.connectors.reading.planning import plan_read
from commitlake.connectors.reading.read_request import Filters, Request
from commitlake.connectors.reading.snapshots import Snapshot, StoreRange
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.runtime.partition_files import partition_count
from commitlake.connectors.runtime.runner import Runner, Task, group_small_tasks
from commitlake.pipelines.archive.row_buffer import join_rows
from commitlake.pipelines.audit import body_tasks, run_counts
from commitlake.pipelines.audit.audited_ranges import AuditSpan, LogSpan, to_log_ranges
from commitlake.pipelines.audit.audited_versions import LakeState
from commitlake.pipelines.audit.counts_by_window import count_messages_by_window, merge_windows
from commitlake.pipelines.audit.erasure_corrections import AuditedErasures, read_erased
from commitlake.pipelines.audit.key_differences import count_different_keys
from commitlake.pipelines.audit.message_rows import DICTIONARIES, MessageRows, RowCriteria, count_file_by_window
from commitlake.pipelines.audit.run_counts import CountedLogPart
from commitlake.pipelines.audit.window_profiles import Profile
from commitlake.pipelines.masking.archive_masks import ArchiveMasks, parse_lake_masks
from commitlake.pipelines.masking.erased_rows import erase_rows
from commitlake.pipelines.message_keys.check import open_keys_of_messages, open_keys_of_table
from commitlake.schemas.tables.messages import BODY, BODY_REF, CORRUPT_RECORD, MESSAGES, SOURCE

_COLUMNS = SOURCE.drop_columns(BODY.name)
_PART_ROWS = 1 << 16
_MAX_BATCHES = 8  # each keeps all of the kernel's buffers, even if it fills little of them
_MESSAGES: pa.Schema = arrow_schema(MESSAGES)
_SPLIT_BYTES = 32 << 20


def plan_store_splits(
    path: str, broker: str | None, ranges: Mapping[str, StoreRange], layout: Formats, split_bytes: int
) -> Sequence[Split]:
    """Divide the given ranges of the brokers' logs into parts to be read by tasks.

    Args:
        path: stores, as for `find_stores`.
        broker: name of the store, if the path does not have it.
        ranges: range of each broker's log.
        layout: formats of stores to take from the path.
        split_bytes: maximum size of a split.
    """
    given = {"path": path, "snapshot": Snapshot(ranges).to_json(), "maxPartitionBytes": str(split_bytes)}
    options = ReadOptions.parse(given | ({} if broker is None else {"broker": broker}), formats=layout)
    return plan_read(options, Filters()).splits


def count_split_by_window(
    criteria: RowCriteria, masks: ArchiveMasks | None, erased_messages: ErasedMessages, split: Split
) -> pa.Table:
    """Count the wanted messages in a part of a store's log by queue and time window, as a table of `AUDIT`.

    Args:
        criteria: criteria for the messages.
        masks: rules by which the lake's messages are masked; None for none.
        erased_messages: messages to count as the lake has them after their erasure.
        split: part of a store's log.
    """
    return merge_windows(
        [
            count_messages_by_window(criteria.select_rows_of(_erase_as_in_lake(rows, erased_messages)))
            for rows in _read_split_rows(split, masks)
        ]
    )


def _erase_as_in_lake(rows: pa.Table, erased_messages: ErasedMessages) -> pa.Table:
    """Return rows of a store without the data of erased messages, as `messages` has them after erasures."""
    if not erased_messages:
        return rows
    place = pa.nulls(rows.num_rows, arrow_schema(MESSAGES).field(BODY_REF.name).type)
    return erase_rows(rows.append_column(BODY_REF.name, place), erased_messages)[0].drop_columns([BODY_REF.name])


def _read_split_rows(split: Split, masks: ArchiveMasks | None) -> Iterator[pa.Table]:
    with_bodies = masks is not None and masks.changes_bodies
    columns = SOURCE if with_bodies else _COLUMNS
    request = Request(arrow_schema(columns), Mode.PERMISSIVE, encoded=True)
    waiting: list[pa.Table] = []
    for batch in read_split(split, request):
        if batch.column("size").null_count:  # bad ranges have batches of their own
            continue
        rows = batch.drop_columns([CORRUPT_RECORD.name])
        if masks is not None:
            rows, _ = masks.mask_rows(rows)
        waiting.append(pa.Table.from_batches([rows.drop_columns([BODY.name]) if with_bodies else rows]))
        if len(waiting) >= _MAX_BATCHES or sum(table.num_rows for table in waiting) >= _PART_ROWS:
            yield join_rows(waiting)
            waiting = []
    if waiting:
        yield join_rows(waiting)


@dataclass(frozen=True)
class PackedBodies:
    """Message counts according to the table `messages`, and according to the bodies read from packs.

    Attributes:
        messages: messages as the table has them.
        found: the same with the sizes and CRCs of the bodies that were read.
        errors: the first bodies that cannot be read, with reasons.
    """

    messages: Profile
    found: Profile
    errors: Sequence[str]


@dataclass(frozen=True)
class AuditSides:
    """Counter of a lake's messages in each place that an audit compares: tables, packs, stores and HBase.

    Attributes:
        lake: view of the lake.
        span: time range of messages.
        moment: moment of the lake.
        erased: messages that are erased at that moment.
        runner: runs the tasks.
        scratch: folder of this machine, for windows that do not fit into memory.
    """

    lake: PinnedLake
    span: AuditSpan
    moment: LakeState
    erased: AuditedErasures
    runner: Runner
    scratch: Path

    def limit_to_dates_from(self, date: datetime.date) -> Self:
        """Return a copy that only counts messages stored on a date or later."""
        return replace(self, span=self.span.limit_to_dates_from(date))

    @property
    def erased_in_stores(self) -> ErasedMessages:
        """Erased messages whose data must be removed from the rows that are read from a store."""
        return self.erased.erased_messages if self.moment.erased_form >= FORM else NOTHING_ERASED

    def correct_store_for_erasures(self, expected: Profile, log_ranges: Sequence[LogSpan]) -> None:
        """Adjust a store's message counts to erasures by an earlier version, which left more data in erased rows."""
        # Earlier versions left more columns of erased rows, so a store's rows in today's erased form would not match
        # them.
        if self.moment.erased_form < FORM:
            self.correct_for_erasures(expected, log_ranges)

    def correct_for_erasures(self, expected: Profile, log_ranges: Sequence[LogSpan] | None) -> None:
        """Adjust `expected`, the counts of messages before their erasure, to the erased rows in the lake now.

        Args:
            expected: profile of the runs' counts.
            log_ranges: ranges that are compared; None for all.
        """
        windows = self.erased.window_corrections(self.span, log_ranges)
        if windows is not None:
            expected.add_windows(windows)

    def profile_messages(self, log_ranges: Sequence[LogSpan] | None = None) -> Profile:
        """Count the messages in the table `messages` by queue and time window.

        Args:
            log_ranges: ranges of the brokers' logs to limit it to, which do not overlap.
        """
        names = {field.name for field in self.lake.table("messages").schema().fields}
        columns = pa.schema([field for field in _MESSAGES if field.name in names])
        rows, files = self._message_rows(columns, log_ranges)
        return self._profile_files(partial(count_file_by_window, rows), files)

    def profile_run_counts(self) -> Profile:
        """Return the message counts that archive runs recorded in `profiles`."""
        profiles, files = self._open_run_profiles(run_counts.COLUMNS)
        return self._profile_files(partial(profiles.read_windows, self.span), files)

    def read_counted_part(self) -> CountedLogPart | None:
        """Return the log ranges for which archive runs recorded message counts; None if there are none."""
        runs = _read_all_rows(*self._open_table_rows("archive_runs", run_counts.RUN_COLUMNS))
        profiles, files = self._open_run_profiles(run_counts.TAKEN)
        taken = [table for _, table in self.runner.run(profiles.read_run_extents, self._group_files(files))]
        has_expired = bool({"profiles", "archive_runs"} & self.moment.expired.keys())
        return run_counts.find_counted_part(runs, taken, self.moment.commit.sequence, has_expired=has_expired)

    @contextmanager
    def profile_bodies(self, kept_since: datetime.date | None) -> Iterator[PackedBodies]:
        """Read all bodies that `messages` refers to, and yield the counts of `messages` and those of the bodies read.

        Args:
            kept_since: bodies of earlier dates may have expired; None if all are kept.
        """
        rows, files = self._message_rows(pa.schema([_MESSAGES.field(name) for name in body_tasks.COLUMNS]))
        packed = body_tasks.PackedMessages(rows, kept_since, self.erased.erased_messages)
        parts = partition_count(sum(file.rows or 0 for file in files))
        check = partial(body_tasks.check_packs, self.lake.packs)
        errors: body_tasks.BodyErrors = []
        with self._profile_files(packed.count_by_window, files) as messages, Profile(self.scratch) as found:
            for windows, broken in self.runner.shuffle(partial(packed.divide_by_pack, parts), files, check, parts):
                found.add_windows(windows)
                errors += broken
            yield PackedBodies(messages, found, body_tasks.body_error_sentences(errors))

    def profile_stores(
        self, path: str, broker: str | None, ranges: Mapping[str, StoreRange], layout: Formats = ANY_FORMAT
    ) -> Profile:
        """Count the messages in the stores by time window, in ranges of the brokers' logs."""
        splits = plan_store_splits(path, broker, ranges, layout, _SPLIT_BYTES)
        masks = parse_lake_masks(self.moment.commit.masks, os.environ)
        count = partial(count_split_by_window, RowCriteria(self.span), masks, self.erased_in_stores)
        return self._profile_groups(
            count, group_small_tasks(splits, [split.size for split in splits], self.runner.cores)
        )

    def profile_hbase(self, options: HBaseOptions) -> Profile:
        """Count the messages in HBase by queue and time window, as far as HBase had them at the audited version."""
        from commitlake.pipelines.audit import hbase_tasks  # noqa: PLC0415 (happybase, only where it is wanted)

        ends = {broker: StoreRange(0, progress.end) for broker, progress in self.moment.commit.stores.items()}
        wanted = RowCriteria(self.span, to_log_ranges(ends))
        salts = [[salt] for salt in hbase_tasks.list_salts(options)]
        return self._profile_groups(partial(hbase_tasks.count_messages_of_salt, options, wanted), salts)

    def compare_message_keys(self, keys_version: int) -> tuple[int, Sequence[str]]:
        """Compare a version of `message_keys` with the keys of all messages.

        Returns:
            The number of rows that only one of them has, and sentences on the first ones.
        """
        expected, found = (
            open_keys_of_messages(self.lake, self.moment.version),
            open_keys_of_table(self.lake, keys_version),
        )
        return count_different_keys(expected, found, self.runner)

    def _profile_files(self, count_file: Callable[[AddedFile], pa.Table], files: Sequence[AddedFile]) -> Profile:
        return self._profile_groups(count_file, self._group_files(files))

    def _group_files(self, files: Sequence[AddedFile]) -> list[Sequence[AddedFile]]:
        return group_small_tasks(files, [file.size for file in files], self.runner.cores)

    def _profile_groups(self, count_task: Callable[[Task], pa.Table], groups: Sequence[Sequence[Task]]) -> Profile:
        """Run `count_task` on all groups of tasks in parallel, and return the sum of their message counts."""
        profile = Profile(self.scratch)
        try:
            for _, windows in self.runner.run(partial(_count_tasks, count_task), groups):
                profile.add_windows(windows)
        except BaseException:
            # The profile has files in the temporary folder, which must not outlive a failed task.
            profile.close()
            raise
        return profile

    def _message_rows(
        self, columns: pa.Schema, log_ranges: Sequence[LogSpan] | None = None
    ) -> tuple[MessageRows, Sequence[AddedFile]]:
        """Return a reader of the wanted messages, and the data files that may have them."""
        wanted = RowCriteria(self.span, log_ranges)
        table, files = self._open_table_rows("messages", columns, self.moment.version, DICTIONARIES)
        return MessageRows(table, wanted), [file for file in files if wanted.may_have_rows(file)]

    def _open_run_profiles(self, columns: pa.Schema) -> tuple[run_counts.RunProfiles, Sequence[AddedFile]]:
        version = self.moment.profiles
        if version is None:
            return run_counts.RunProfiles(TableRows(self.lake.uri("profiles"), self.lake.s3, columns), ()), ()
        table, files = self._open_table_rows("profiles", columns, version)
        return run_counts.RunProfiles(table, self.moment.later), files

    def _open_table_rows(
        self, table: str, columns: pa.Schema, version: int | None = None, dictionaries: Sequence[str] = ()
    ) -> tuple[TableRows, Sequence[AddedFile]]:
        uri = self.lake.uri(table)
        files = files_of_table(uri, self.lake.table_at(table, version)).files
        return TableRows(uri, self.lake.s3, columns, dictionaries), files


def _count_tasks(count_task: Callable[[Task], pa.Table], tasks: Sequence[Task]) -> pa.Table:
    return merge_windows([count_task(task) for task in tasks])


def _read_all_rows(table: TableRows, files: Sequence[AddedFile]) -> pa.Table:
    return pa.concat_tables([table.schema.empty_table(), *(rows for file in files for rows in table.read_file(file))])


@contextmanager
def open_audit_sides(runner: Runner, lake: Lake, span: AuditSpan, moment: LakeState) -> Iterator[AuditSides]:
    """Open the tables, packs, stores and HBase that an audit compares, with a folder for temporary files.

    Args:
        runner: runs the tasks.
        lake: the lake, or a view of it that was opened after the moment.
    """
    with tempfile.TemporaryDirectory(prefix="commitlake-audit-") as scratch:
        view = lake.pin_versions()
        yield AuditSides(view, span, moment, read_erased(view, moment), runner, Path(scratch))
