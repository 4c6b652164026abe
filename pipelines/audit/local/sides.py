"""The sides of an audit, computed by tasks of a runner without Spark.

A task reads a data file, a split of a log, a salt of HBase's table, or the packs of one partition.
"""

from __future__ import annotations

import datetime
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.formats.registry import ANY_FORMAT, FormatChoice
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.location import pack_location
from commitlake.connectors.lake.table_rows import TableRows
from commitlake.connectors.lake.versions import AddedFile, snapshot_files
from commitlake.connectors.reading.snapshots import StoreRange
from commitlake.connectors.runtime.runner import Runner, Task
from commitlake.pipelines.audit.erased import Erased
from commitlake.pipelines.audit.local import body_tasks, run_counts, store_tasks
from commitlake.pipelines.audit.local.key_rows import different_keys
from commitlake.pipelines.audit.local.message_rows import DICTIONARIES, MessageRows, RowCriteria, count_file
from commitlake.pipelines.audit.local.partition_files import partition_count
from commitlake.pipelines.audit.local.profile import LocalProfile
from commitlake.pipelines.audit.moment import Moment
from commitlake.pipelines.audit.sides import Counted, PackedBodies, Sides, Stretch, stretches_of
from commitlake.pipelines.audit.span import AuditSpan
from commitlake.pipelines.masking.archiving import masks_of_lake
from commitlake.pipelines.message_keys.check import keys_of_messages, keys_of_table
from commitlake.schemas.tables.messages import MESSAGES

_MESSAGES: pa.Schema = arrow_schema(MESSAGES)
_SPLIT_BYTES = 32 << 20


@dataclass(frozen=True)
class LocalSides(Sides):
    """Sides of an audit by tasks.

    Attributes:
        runner: runs the tasks.
        scratch: folder for data that does not fit into memory; the tasks must be able to read it.
    """

    runner: Runner
    scratch: Path

    def messages(self, within: Sequence[Stretch] | None = None) -> LocalProfile:
        """Profile the table; see `Sides.messages`."""
        names = {field.name for field in self.lake.table("messages").schema().fields}
        columns = pa.schema([field for field in _MESSAGES if field.name in names])
        rows, files = self._message_rows(columns, within)
        return self._profile(partial(count_file, rows), files)

    def archived(self) -> LocalProfile:
        """Profile the counts that runs recorded."""
        profiles, files = self._run_profiles(run_counts.COLUMNS)
        return self._profile(partial(profiles.windows, self.span), files)

    def counted(self) -> Counted | None:
        """Return the runs with counts; see `Sides.counted`."""
        runs = _all_rows(*self._table(self.lake.uri("archive_runs"), run_counts.RUN_COLUMNS))
        profiles, files = self._run_profiles(run_counts.TAKEN)
        taken = [table for _, table in self.runner.run(profiles.taken, files)]
        has_expired = bool({"profiles", "archive_runs"} & self.moment.expired.keys())
        return run_counts.counted_of(runs, taken, self.moment.commit.sequence, has_expired=has_expired)

    @contextmanager
    def with_bodies(self, kept_since: datetime.date | None) -> Iterator[PackedBodies]:
        """Read the bodies; see `Sides.with_bodies`."""
        rows, files = self._message_rows(pa.schema([_MESSAGES.field(name) for name in body_tasks.COLUMNS]))
        partitions = partition_count(sum(file.rows or 0 for file in files))
        with (
            tempfile.TemporaryDirectory(dir=self.scratch) as folder,
            LocalProfile(self.scratch) as messages,
            LocalProfile(self.scratch) as found,
        ):
            places = body_tasks.BodyPlaces(rows, kept_since, Path(folder), partitions, self.erased.places)
            paths: list[Path] = []
            for _, (windows, written) in self.runner.run(partial(body_tasks.find_places, places), files):
                messages.add(windows)
                paths += written
            errors: body_tasks.BodyErrors = []
            check = partial(body_tasks.check_packs, pack_location(self.bodies), paths)
            for _, (windows, broken) in self.runner.run(check, range(partitions if paths else 0)):
                found.add(windows)
                errors += broken
            yield PackedBodies(messages, found, body_tasks.error_sentences(errors))

    def store(
        self, path: str, broker: str | None, ranges: Mapping[str, StoreRange], layout: FormatChoice = ANY_FORMAT
    ) -> LocalProfile:
        """Profile the stores; see `Sides.store`."""
        splits = store_tasks.splits_of(path, broker, ranges, layout, _SPLIT_BYTES)
        masks = masks_of_lake(self.moment.commit.masks, os.environ)
        count = partial(store_tasks.count_split, RowCriteria(self.span), masks, self.erased_in_stores)
        return self._profile(count, splits)

    def hbase(self, options: HBaseOptions) -> LocalProfile:
        """Profile HBase; see `Sides.hbase`."""
        from commitlake.pipelines.audit.local import hbase_tasks  # noqa: PLC0415 (happybase, only where it is wanted)

        ends = {broker: StoreRange(0, progress.end) for broker, progress in self.moment.commit.stores.items()}
        wanted = RowCriteria(self.span, stretches_of(ends))
        return self._profile(partial(hbase_tasks.count_salt, options, wanted), hbase_tasks.salts_of(options))

    def different_keys(self, version: int) -> tuple[int, Sequence[str]]:
        """Compare `message_keys` with the keys of all messages; see `Sides.different_keys`."""
        expected, found = keys_of_messages(self.lake, self.moment.version), keys_of_table(self.lake, version)
        with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
            return different_keys(expected, found, self.runner, Path(folder))

    def _profile(self, count: Callable[[Task], pa.Table], tasks: Sequence[Task]) -> LocalProfile:
        """Combine the windows that tasks count into a profile."""
        profile = LocalProfile(self.scratch)
        try:
            for _, windows in self.runner.run(count, tasks):
                profile.add(windows)
        except BaseException:
            profile.close()
            raise
        return profile

    def _message_rows(
        self, columns: pa.Schema, within: Sequence[Stretch] | None = None
    ) -> tuple[MessageRows, Sequence[AddedFile]]:
        """Return a reader of the wanted messages, and the data files that may have them."""
        wanted = RowCriteria(self.span, within)
        table, files = self._table(self.lake.uri("messages"), columns, self.moment.version, DICTIONARIES)
        return MessageRows(table, wanted), [file for file in files if wanted.may_hold(file)]

    def _run_profiles(self, columns: pa.Schema) -> tuple[run_counts.RunProfiles, Sequence[AddedFile]]:
        version = self.moment.profiles
        if version is None:
            return run_counts.RunProfiles(TableRows(self.lake.uri("profiles"), self.lake.s3, columns), ()), ()
        table, files = self._table(self.lake.uri("profiles"), columns, version)
        return run_counts.RunProfiles(table, self.moment.later), files

    def _table(
        self, uri: str, columns: pa.Schema, version: int | None = None, dictionaries: Sequence[str] = ()
    ) -> tuple[TableRows, Sequence[AddedFile]]:
        files = snapshot_files(uri, self.lake.storage_options, version).files
        return TableRows(uri, self.lake.s3, columns, dictionaries), files


def _all_rows(table: TableRows, files: Sequence[AddedFile]) -> pa.Table:
    return pa.concat_tables([table.schema.empty_table(), *(rows for file in files for rows in table.read(file))])


@contextmanager
def local_sides(
    runner: Runner, lake: Lake, bodies: str, span: AuditSpan, moment: Moment, erased: Erased
) -> Iterator[LocalSides]:
    """Open the sides of a lake, with a folder for data that does not fit into memory; it is deleted at the end.

    Args:
        runner: runs the tasks, which must be able to read this machine's folder for temporary files.
        bodies: root folder of the packs.
        erased: messages that are erased at that moment.
    """
    with tempfile.TemporaryDirectory(prefix="commitlake-audit-") as scratch:
        yield LocalSides(lake, bodies, span, moment, erased, runner, Path(scratch))
