"""Iceberg tables over the data files of a lake's Delta tables, which follow them commit by commit.

    plan      what the Delta table's log has after the version that the newest snapshot names
    commit    one snapshot of Iceberg for each version of Delta that added or removed files
    check     the newest snapshot has as many files and rows as the Delta table
    expire    snapshots whose data files a vacuum may have deleted, and old ones

No data file is written or copied. Each snapshot names its version of Delta (`delta_version` in its summary), so a run
that was killed continues, and of two runs at the same time, the catalog accepts one. Where the log no longer has the
versions, or the Delta table was created again, one snapshot exchanges all files.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException, ValidationError
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import PrimitiveType

from commitlake.connectors.iceberg.delta_files import DataFiles, iceberg_schema, partition_spec
from commitlake.connectors.lake.delta_log.versions import ChangedFiles, VersionGoneError, changed_files
from commitlake.connectors.lake.lake import Lake
from commitlake.schemas.errors import CommitLakeError, ExitCode
from commitlake.schemas.layouts.integer_parsing import parse_int64
from commitlake.schemas.tables.lake_tables import LAKE_TABLES
from commitlake.schemas.times import from_ms

KEPT_SNAPSHOTS = datetime.timedelta(days=7)
"""Time for which older snapshots are kept, unless a vacuum has deleted their files; Delta's own default for files."""
MAX_TRIES = 5
"""Attempts to commit while other runs commit."""
VERSION = "delta_version"
"""Key of the version of the Delta table in the summary of a snapshot."""
_READ_VERSION, _DELTA_TABLE, _ROOT = "commitlake.delta-version", "commitlake.delta-table", "commitlake.lake"
_NAME_MAPPING = "schema.name-mapping.default"
_WARNING = (
    "Its data files belong to a Delta table, which 'commitlake publish' follows. Do not write to it, expire its "
    "snapshots or remove its orphan files: Delta's files would be deleted."
)


class PublicationError(CommitLakeError):
    """A table cannot be published: another program owns its name, or has changed it."""

    exit_code = ExitCode.REFUSED


class IcebergCatalog(Protocol):
    """Access to one Iceberg table, which may not exist yet."""

    def find(self) -> Table | None:
        """Open the table; None if there is none."""

    def create(self, schema: Schema, partition_spec: PartitionSpec, properties: dict[str, str]) -> Table:
        """Create the table."""


@dataclass(frozen=True, slots=True)
class Publication:
    """Result of publishing one table.

    Attributes:
        table: name of the table in the lake.
        version: version of the Delta table that the newest snapshot shows.
        snapshots: number of snapshots that the run made.
        expired: number of older snapshots that it removed.
        files: number of data files of the newest snapshot.
        rows: number of their rows.
        location: path or URI of the newest metadata.
    """

    table: str
    version: int
    snapshots: int
    expired: int
    files: int
    rows: int
    location: str


def publish_table(lake: Lake, name: str, root_uri: str, catalog: IcebergCatalog, now: datetime.datetime) -> Publication:
    """Bring the Iceberg table of a table of a lake to the state of its Delta table.

    Args:
        lake: the lake.
        name: name of the table.
        root_uri: URI of the lake, without a slash at the end.
        catalog: where the Iceberg table is.
        now: the current time.

    Raises:
        PublicationError: if the Iceberg table is not one of this lake, or other runs committed first again and again.
        UnpublishableTableError: if Iceberg cannot describe the Delta table.
        LakeError: if the lake has no such table.
    """
    for _ in range(MAX_TRIES):
        try:
            return _Publisher(lake, name, root_uri, now).publish(catalog)
        except CommitFailedException:
            continue
    raise PublicationError(
        f"{name}: other runs committed to the Iceberg table first, {MAX_TRIES} times", is_transient=True
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """Changes of the files that become one snapshot.

    Attributes:
        version: version of the Delta table that the snapshot shows.
        added: descriptions of added files, by name.
        removed: names of removed files.
    """

    version: int
    added: Mapping[str, DataFile] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()


class _Publisher:
    def __init__(self, lake: Lake, name: str, root_uri: str, now: datetime.datetime) -> None:
        self._lake = lake
        self._name = name
        self._now = now
        self._delta = lake.table(name)
        self._schema = iceberg_schema(self._delta)
        self._table_uri = f"{root_uri}/{name}"
        self._identity = {_ROOT: root_uri, _DELTA_TABLE: str(self._delta.metadata().id)}

    def publish(self, catalog: IcebergCatalog) -> Publication:
        table = catalog.find()
        if table is None:
            table = catalog.create(self._schema, partition_spec(self._delta, self._schema), self._properties())
        published_version = self._check_owner(table)
        self._update_columns(table)
        files = DataFiles(self._table_uri, table.schema(), table.spec(), self._count_rows)
        newest_files = files.describe_table(self._delta)
        snapshots, is_cut = 0, published_version is None
        try:
            for change in [] if published_version is None else self._read_changes(published_version):
                is_cut |= change.is_vacuum
                if change.added or change.removed:
                    added = {
                        name: newest_files.get(name) or files.describe_added(name, action)
                        for name, action in change.added.items()
                    }
                    self._commit(table, _Step(change.version, added, change.removed))
                    snapshots += 1
        except VersionGoneError:
            is_cut = True
        if not _shows(table, newest_files):
            self._commit(table, self._exchange(table, newest_files))
            snapshots += 1
        self._record_version(table)
        return Publication(
            self._name,
            self._delta.version(),
            snapshots,
            self._expire(table, is_cut=is_cut),
            len(newest_files),
            _count_rows(newest_files),
            table.metadata_location,
        )

    def _properties(self) -> dict[str, str]:
        return {
            **self._identity,
            _NAME_MAPPING: create_mapping_from_schema(self._schema).model_dump_json(),
            "comment": f"{LAKE_TABLES[self._name].comment}. {_WARNING}",
            "gc.enabled": "false",
            "commit.retry.num-retries": "0",  # a retry after another run's commit would add its files again
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "20",
        }

    def _check_owner(self, table: Table) -> int | None:
        """Return the version of the Delta table that an Iceberg table shows; None if it cannot follow it from there.

        Raises:
            PublicationError: if the Iceberg table is another one, or another program has written to it.
        """
        found = {key: table.properties.get(key) for key in self._identity}
        snapshot = table.current_snapshot()
        if not any(found[key] == value for key, value in self._identity.items()):
            raise PublicationError(
                f"{self._name}: {table.location()} is another table: expected one that 'commitlake publish' made of "
                f"{self._table_uri}",
                hint="drop that table, or choose another namespace with --to",
            )
        if snapshot is not None and _summary(snapshot).get(VERSION) is None:
            raise PublicationError(
                f"{self._name}: another program has written snapshot {snapshot.snapshot_id} of {table.location()}",
                hint="drop the Iceberg table (its data files must stay), and publish it again",
            )
        shown = [table.properties.get(_READ_VERSION), None if snapshot is None else _summary(snapshot)[VERSION]]
        version = max((parse_int64(text) or 0 for text in shown if text is not None), default=-1)
        follows = found == self._identity and 0 <= version <= self._delta.version()
        return version if follows else None

    def _update_columns(self, table: Table) -> None:
        """Add new columns of the Delta table, and widen types."""
        if _column_types(self._schema).items() <= _column_types(table.schema()).items():
            return
        try:
            with table.update_schema() as update:
                update.union_by_name(self._schema)
        except ValidationError as error:
            raise PublicationError(
                f"{self._name}: the columns of {table.location()} cannot become those of the Delta table: {error}",
                hint="drop the Iceberg table (its data files must stay), and publish it again",
            ) from None

    def _read_changes(self, after_version: int) -> Iterator[ChangedFiles]:
        versions = range(after_version + 1, self._delta.version() + 1)
        return changed_files(self._lake.uri(self._name), versions, self._lake.storage_options)

    def _commit(self, table: Table, step: _Step) -> None:
        """Commit a snapshot, which also makes the table that of this lake, if the lake was moved."""
        with table.transaction() as transaction:
            if not self._identity.items() <= table.properties.items():
                transaction.set_properties(self._identity)
            update = transaction.update_snapshot(snapshot_properties={VERSION: str(step.version)})
            removed = [
                file
                for file in (_data_files(table).values() if step.removed else ())
                if file.file_path.removeprefix(f"{self._table_uri}/") in step.removed
            ]
            with update.overwrite() if removed else update.merge_append() as snapshot:
                for file in step.added.values():
                    snapshot.append_data_file(file)
                for file in removed:
                    snapshot.delete_data_file(file)

    def _exchange(self, table: Table, newest_files: Mapping[str, DataFile]) -> _Step:
        """Return the step from the files of the newest snapshot to those of the Delta table."""
        shown = {path.removeprefix(f"{self._table_uri}/") for path in _data_files(table)}
        added = {name: file for name, file in newest_files.items() if name not in shown}
        return _Step(self._delta.version(), added, frozenset(shown - newest_files.keys()))

    def _record_version(self, table: Table) -> None:
        """Record that versions were read, if the last ones changed no files, so that they are not read again."""
        version, snapshot = str(self._delta.version()), table.current_snapshot()
        shown = table.properties.get(_READ_VERSION) if snapshot is None else _summary(snapshot)[VERSION]
        if version not in (shown, table.properties.get(_READ_VERSION)):
            with table.transaction() as transaction:
                transaction.set_properties({_READ_VERSION: version})

    def _expire(self, table: Table, *, is_cut: bool) -> int:
        """Remove snapshots whose files may be gone, and old ones, and return their number.

        Args:
            table: the table.
            is_cut: whether files of all earlier snapshots may be gone.
        """
        kept: list[Snapshot] = []
        expired: list[Snapshot] = []
        for snapshot in table.snapshots():
            is_old = is_cut or from_ms(snapshot.timestamp_ms) < self._now - KEPT_SNAPSHOTS
            is_newest = snapshot.snapshot_id == table.metadata.current_snapshot_id
            (expired if is_old and not is_newest else kept).append(snapshot)
        if expired:
            garbage = _metadata_files(table, expired) - _metadata_files(table, kept)
            table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in expired]).commit()
            for location in garbage:
                table.io.delete(location)
        return len(expired)

    def _count_rows(self, file_name: str) -> int:
        with self._lake.open_folder(self._name).open_input_file(file_name) as file:
            return int(pq.read_metadata(file).num_rows)


def _shows(table: Table, files: Mapping[str, DataFile]) -> bool:
    """Return whether the newest snapshot has as many files and rows as a Delta table."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return not files
    counts = [_summary(snapshot).get(key) for key in ("total-data-files", "total-records")]
    return counts == [str(len(files)), str(_count_rows(files))]


def _count_rows(files: Mapping[str, DataFile]) -> int:
    return sum(file.record_count for file in files.values())


def _data_files(table: Table) -> dict[str, DataFile]:
    """Return the data files of the newest snapshot, by path."""
    snapshot = table.current_snapshot()
    manifests = [] if snapshot is None else snapshot.manifests(table.io)
    entries = [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)]
    return {entry.data_file.file_path: entry.data_file for entry in entries}


def _metadata_files(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    """Return the locations of the manifest lists and manifests of snapshots; those that are gone have none."""
    locations = set()
    for snapshot in snapshots:
        with suppress(FileNotFoundError):
            locations |= {manifest.manifest_path for manifest in snapshot.manifests(table.io)}
            locations.add(snapshot.manifest_list)
    return locations


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _column_types(schema: Schema) -> dict[str, str]:
    """Return the types of all columns, also of nested ones, by their names; those with parts have none."""
    types = {name: schema.find_type(name) for name in schema.column_names}
    return {name: str(kind) if isinstance(kind, PrimitiveType) else "" for name, kind in types.items()}
