"""A catalog of one Iceberg table that is nothing but the table's folder, in the layout of Hadoop tables.

    <lake>/_iceberg/<table>/metadata/v3.metadata.json      each version of the table
                                     version-hint.text     the number of the newest
                                     *.avro                manifests

DuckDB's `iceberg_scan`, PyIceberg's `StaticTable` and Spark's `load` open such a folder by its path. A version is a
file that may not exist before, so of two processes that commit at the same time, only one succeeds.
"""

from __future__ import annotations

import re
from io import BytesIO

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromByteStream
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata

from commitlake.connectors.storage.storage import LakeStorage
from commitlake.schemas.layouts.integer_parsing import parse_int64

FOLDER = "_iceberg"
"""Folder of a lake with the metadata of its Iceberg tables."""
KEPT_VERSIONS = 20
"""Versions of the metadata that are kept, for readers that have just opened one."""
_VERSION = re.compile(r"v([0-9]{1,9})\.metadata\.json")


class MetadataFolder(NoopCatalog):
    """The catalog of one table, whose metadata is in a folder of a lake.

    Args:
        storage: the lake's storage.
        root_uri: URI of the lake's root, without a slash at the end.
        table: name of the table.
    """

    def __init__(self, storage: LakeStorage, root_uri: str, table: str) -> None:
        super().__init__(FOLDER)
        self._storage = storage
        self._folder = f"{FOLDER}/{table}/metadata"
        self._identifier = (FOLDER, table)
        self._io = StorageFiles(storage, root_uri)
        self.location = f"{root_uri}/{FOLDER}/{table}"

    def find(self) -> Table | None:
        """Open the newest version; None if there is none, or if the lake was elsewhere when it was written."""
        versions = self._versions()
        if not versions:
            return None
        location = self._version_location(versions[-1])
        with self._io.new_input(location).open() as stream:
            metadata = FromByteStream.table_metadata(stream)
        if metadata.location != self.location:  # the paths in it lead to where the lake was
            return None
        return self._table(metadata, location)

    def create(self, schema: Schema, partition_spec: PartitionSpec, properties: dict[str, str]) -> Table:
        """Write the first version of a new table, after the versions of an earlier one.

        Raises:
            CommitFailedException: if another process has just written one.
        """
        metadata = new_table_metadata(schema, partition_spec, UNSORTED_SORT_ORDER, self.location, dict(properties))
        versions = self._versions()
        return self._table(metadata, self._write(metadata, versions[-1] if versions else 0))

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Write the next version of a table; see `Catalog`.

        Raises:
            CommitFailedException: if another process has just written one.
        """
        for requirement in requirements:
            requirement.validate(table.metadata)
        metadata = update_table_metadata(table.metadata, updates, metadata_location=table.metadata_location)
        location = self._write(metadata, _version_number(table.metadata_location))
        return CommitTableResponse.model_validate({"metadata": metadata, "metadata-location": location})

    def _write(self, metadata: TableMetadata, after_version: int) -> str:
        version = after_version + 1
        name = f"{self._folder}/v{version}.metadata.json"
        if not self._storage.put_new(name, metadata.model_dump_json().encode()):
            raise CommitFailedException(f"{self.location}: another process has written version {version}")
        with self._storage.open_write(f"{self._folder}/version-hint.text") as hint:
            hint.write(str(version).encode())
        old = [number for number in self._versions() if number <= version - KEPT_VERSIONS]
        self._storage.delete_all(f"{self._folder}/v{number}.metadata.json" for number in old)
        return self._version_location(version)

    def _versions(self) -> list[int]:
        names = [name for name, _ in self._storage.files(f"{self._folder}/v", ".metadata.json")]
        return sorted(_version_number(name) for name in names if _VERSION.search(name))

    def _version_location(self, version: int) -> str:
        return f"{self.location}/metadata/v{version}.metadata.json"

    def _table(self, metadata: TableMetadata, location: str) -> Table:
        return Table(self._identifier, metadata, location, self._io, self)


def _version_number(name: str) -> int:
    found = _VERSION.search(name)
    assert found is not None, name
    version = parse_int64(found[1])
    assert version is not None
    return version


class StorageFiles(FileIO):
    """PyIceberg's access to files, through the storage of a lake.

    Args:
        storage: the lake's storage.
        root_uri: URI of the lake's root.
    """

    def __init__(self, storage: LakeStorage, root_uri: str) -> None:
        super().__init__()
        self._storage = storage
        self._root_uri = root_uri

    def new_input(self, location: str) -> InputFile:
        """Return access to a file, which may be missing."""
        return _StorageInput(location, self._storage, self._name(location))

    def new_output(self, location: str) -> OutputFile:
        """Return access to a file that is to be written."""
        return _StorageOutput(location, self._storage, self._name(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file, if it exists."""
        self._storage.delete_all([self._name(location if isinstance(location, str) else location.location)])

    def _name(self, location: str) -> str:
        return location.removeprefix(f"{self._root_uri}/")


class _StorageInput(InputFile):
    def __init__(self, location: str, storage: LakeStorage, name: str) -> None:
        super().__init__(location)
        self._storage = storage
        self._name = name

    def __len__(self) -> int:
        size = self._storage.size(self._name)
        if size is None:
            raise FileNotFoundError(self.location)
        return size

    def exists(self) -> bool:
        return self._storage.size(self._name) is not None

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 (PyIceberg's interface)
        data = self._storage.get_range(self._name, 0, len(self))
        if data is None:
            raise FileNotFoundError(self.location)
        return BytesIO(data)


class _StorageOutput(OutputFile):
    def __init__(self, location: str, storage: LakeStorage, name: str) -> None:
        super().__init__(location)
        self._storage = storage
        self._name = name
        self._input = _StorageInput(location, storage, name)

    def __len__(self) -> int:
        return len(self._input)

    def exists(self) -> bool:
        return self._input.exists()

    def to_input_file(self) -> InputFile:
        return self._input

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: ARG002 (names are unique)
        return _StorageStream(self._storage, self._name)


class _StorageStream(BytesIO):
    """A file in memory, written to the storage when it is closed, as PyIceberg's writers do also after an error.

    A file that is incomplete then is named by no metadata.
    """

    def __init__(self, storage: LakeStorage, name: str) -> None:
        super().__init__()
        self._storage = storage
        self._name = name

    def close(self) -> None:
        """Write the file."""
        if not self.closed:
            with self._storage.open_write(self._name) as file:
                file.write(self.getvalue())
        super().close()
