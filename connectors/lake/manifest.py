"""The report of an archive task to the driver: the files that it wrote, and the data that it could not read.

There are few rows, and they are small, regardless of the log's size and state: a data file contains ten thousand rows
or more, and a large profile is stored in a file, see `pipelines.archive.profile_files`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.lake.store_progress import QueueReport


@dataclass(frozen=True, slots=True)
class RefusalCounts:
    """Counts of the unreadable byte ranges and rows in one broker's log.

    Attributes:
        bad_ranges: number of ranges without an intact record.
        marked_rows: number of messages with a value that no column can hold.
        missing_ranges: number of ranges whose segment is missing.
    """

    bad_ranges: int = 0
    marked_rows: int = 0
    missing_ranges: int = 0

    @property
    def quarantined_row_count(self) -> int:
        """Return the number of rows that these counts stand for in the table `quarantine`."""
        return self.bad_ranges + self.marked_rows

    def __add__(self, other: RefusalCounts) -> RefusalCounts:
        """Return the sums of the counts of two objects."""
        return RefusalCounts(
            self.bad_ranges + other.bad_ranges,
            self.marked_rows + other.marked_rows,
            self.missing_ranges + other.missing_ranges,
        )


@dataclass(frozen=True, slots=True)
class TaskProfile:
    """Profile (counts and checksums) of a task's rows, or the file that contains it, as it is sent to the driver.

    Attributes:
        data: the profile, or the index of its file if it is in one: see `pipelines.quality.profile_partitions`.
        path: the file, relative to the folder of the table `profiles`; empty for none.
    """

    data: bytes
    path: str = ""


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """Row of a task's report to the driver, for a data file or, with an empty path, for another result of the task.

    Attributes:
        table: name of the file's table: messages, message_keys, topic_minutes, quarantine or gaps.
        path: path relative to the table's folder; empty for none.
        store_date: the partition; None for rows without a time.
        size: size of the file in bytes.
        rows: number of rows in it.
        statistics: JSON of Delta's statistics.
        pack_bytes: size of the packs in bytes.
        packs: JSON of the size of each pack in bytes, by its name.
        refused: JSON of the counts of unreadable data, by broker.
        first_refused: description of the first unreadable data.
        profile: profile of the rows, see `TaskProfile.data`; None if none was made.
        profile_path: see `TaskProfile.path`.
        pulled: JSON of a `QueueReport`, if the row is about a part of a queue that was pulled from a broker.
        left_out: number of bodies that were left out because they could not be masked.
        may_have_roles: False if no row of a file of messages is an end of a step, see `pipelines.edges`.
    """

    table: str = ""
    path: str = ""
    store_date: str | None = None
    size: int = 0
    rows: int = 0
    statistics: str = ""
    pack_bytes: int = 0
    packs: str = ""
    refused: str = ""
    first_refused: str = ""
    profile: bytes | None = None
    profile_path: str = ""
    pulled: str = ""
    left_out: int = 0
    may_have_roles: bool = True

    @classmethod
    def from_queue_report(cls, report: QueueReport) -> ManifestRow:
        """Return the manifest row for a part of a queue that was pulled from a broker."""
        return cls(pulled=report.to_json())

    @classmethod
    def from_data_file(cls, file: DataFile, table: str, *, may_have_roles: bool = True) -> ManifestRow:
        """Return the manifest row for a data file of a table."""
        path, date = file.path, file.store_date
        return cls(table, path, date, file.size, file.rows, file.statistics, may_have_roles=may_have_roles)

    @classmethod
    def from_task_results(
        cls,
        sizes_by_pack: Mapping[str, int],
        refusal_counts: Mapping[str, RefusalCounts],
        first_refusal: str,
        profile: TaskProfile | None,
        left_out_count: int = 0,
    ) -> ManifestRow:
        """Return the manifest row for results of a task without a data file; `sizes_by_pack` has pack sizes by name."""
        counts = {broker: asdict(count) for broker, count in refusal_counts.items()}
        return cls(
            pack_bytes=sum(sizes_by_pack.values()),
            packs=json.dumps(dict(sizes_by_pack)) if sizes_by_pack else "",
            refused=json.dumps(counts) if counts else "",
            first_refused=first_refusal,
            profile=profile.data if profile else None,
            profile_path=profile.path if profile else "",
            left_out=left_out_count,
        )

    @property
    def pack_sizes(self) -> dict[str, int]:
        """Return the size of each pack in bytes, by its name."""
        return dict(json.loads(self.packs or "{}"))

    @property
    def refusal_counts(self) -> dict[str, RefusalCounts]:
        """Return the counts of unreadable ranges and rows, by broker."""
        return {broker: RefusalCounts(**counts) for broker, counts in json.loads(self.refused or "{}").items()}

    @property
    def queue_report(self) -> QueueReport | None:
        """Return the report about a queue that was pulled from a broker; None if the row has none."""
        return QueueReport.from_json(self.pulled) if self.pulled else None

    @property
    def task_profile(self) -> TaskProfile | None:
        """Return the profile of the task's rows; None if the task made none."""
        return None if self.profile is None else TaskProfile(self.profile, self.profile_path)

    @property
    def data_file(self) -> DataFile:
        """Return the data file as the object that a commit adds to a table."""
        return DataFile(self.path, self.store_date, self.size, self.rows, self.statistics)
