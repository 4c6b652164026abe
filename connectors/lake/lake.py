"""A lake: the tables and packs of one archive, opened by name."""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from commitlake.connectors.catalog.names import is_catalog_location
from commitlake.connectors.lake.delta_log.file_names import LOG
from commitlake.connectors.lake.packs.location import OWN_PACKS, PackLocation, pack_location
from commitlake.connectors.lake.paths import LakeError, check_links
from commitlake.connectors.storage.s3_options import S3Options
from commitlake.connectors.storage.uris import has_scheme, is_s3, parse_s3_uri
from commitlake.schemas.safe_store_files import create_file
from commitlake.schemas.tables.lake_tables import LAKE_TABLES

if TYPE_CHECKING:
    import pyarrow.fs as pafs
    from deltalake import DeltaTable

    from commitlake.connectors.lake.delta_log.files import LogFolder
    from commitlake.connectors.storage.s3_storage import S3Storage

BODIES = "bodies"
"""Folder with the packs of bodies, if they are in the lake."""
TOPIC_TABLES = "topics"
"""Folder with the typed tables of topics."""
STREAMS = "_streams"
"""Folder with the checkpoints of streams into a lake; it may exist before the first table."""
_NAME = "Name an empty folder or a new one"
_PROBE = ".commitlake-probe-"
_NO_LINKS = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})
# deltalake misreads URLs of folders with these characters.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\\[\]^|#?]|%[0-9A-Fa-f]{2}")


class NoTableError(LakeError):
    """A table of the lake does not exist yet, because nothing was written to it."""


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake: the tables and the body packs of one archive, in one folder or below one URI.

    Attributes:
        root: a folder, as a path or a `file:` URI, or `s3://bucket/prefix`. It may be given as `catalog.schema`, the
            name of a lake in Unity Catalog.
        s3: the object store, by default that of the environment; None if the lake is in a folder. It is determined
            once, on the driver, and sent to workers with the paths.
        packs: location of the packs, by default the folder `bodies_root` of the lake. If it is in an object store,
            that is the lake's, or else that of the driver's environment.

    Raises:
        LakeError: if a lake cannot be there: another kind of store, or a folder name that deltalake misreads.
        S3Error: if a URI of an object store names no bucket.
        CatalogError: if a catalog does not have the name.
    """

    root: str
    s3: S3Options | None = None
    packs: PackLocation = OWN_PACKS

    def __post_init__(self) -> None:
        self._resolve_root()
        packs = pack_location(self.packs.root or self.uri(BODIES), self.packs.s3 or self.s3)
        object.__setattr__(self, "packs", packs)

    def _resolve_root(self) -> None:
        """Convert the lake's location to a path or URI, also from a name in a catalog, and find its S3 options."""
        if is_catalog_location(self.root):
            object.__setattr__(self, "root", _import_catalog_lookup().find_lake_root(self.root))  # the class is frozen
        if is_s3(self.root):
            object.__setattr__(self, "root", str(parse_s3_uri(self.root)))
            object.__setattr__(self, "s3", self.s3 or _s3_options())
            return
        if self.root.startswith("file:"):
            object.__setattr__(self, "root", unquote(urlsplit(self.root).path))
        if has_scheme(self.root):
            expected = f"{self.root!r} cannot hold a lake: expected a folder, or s3://bucket/prefix"
            raise LakeError(expected + _databricks_path_hint(self.root))
        unsafe = _UNSAFE.search(os.path.abspath(self.root))  # noqa: PTH100 (pathlib has no such function)
        if unsafe is not None:
            raise LakeError(
                f"{self.root!r} cannot hold a lake: its path has {unsafe[0]!r}, which the library for Delta tables "
                "does not support. Name another folder"
            )

    @property
    def bodies_root(self) -> str:
        """Root of the packs: a folder, as a path or a `file:` URI, or `s3://bucket/prefix`."""
        return self.packs.root

    @property
    def streams_folder(self) -> str:
        """Folder of the checkpoints of Spark streams that archive into the lake."""
        return self.uri(STREAMS)

    @property
    def report_page_path(self) -> str | None:
        """Path of the page about the newest archive run; None for a lake in an object store."""
        return None if self.s3 is not None else self.uri("quality.html")

    @property
    def storage_options(self) -> dict[str, str] | None:
        """Options of deltalake for the lake's location, with credentials that may expire; None for a folder."""
        from commitlake.connectors.lake.delta import storage_options

        return storage_options(self.root, self.s3)

    def uri(self, name: str) -> str:
        """Return the path or URI of a table, or of another folder of the lake."""
        return f"{self.root.rstrip('/')}/{name}"

    def open_folder(self, table: str = "") -> pafs.FileSystem:
        """Return a filesystem whose root is the folder of a table, or that of the lake.

        Raises:
            TableNotFoundError: if there is no such folder.
        """
        from commitlake.connectors.lake.delta_log.versions import table_filesystem

        return table_filesystem(self.uri(table) if table else self.root, self.storage_options)

    def open_log(self, table: str) -> LogFolder:
        """Return access to the files of the Delta log of a table.

        Raises:
            TableNotFoundError: if the table has no folder.
        """
        from commitlake.connectors.lake.delta_log.files import LogFolder

        return LogFolder(self.uri(table), self.storage_options, self.s3)

    def seal_log(self, table: str) -> None:
        """Store checksums of a table's log after a commit, to detect damage later."""
        from commitlake.connectors.lake.delta import seal_log_after_commit

        seal_log_after_commit(self.uri(table), self.s3)

    def table(self, table: str) -> DeltaTable:
        """Open a table at its newest version.

        Raises:
            NoTableError: if the lake does not have the table yet.
            LakeError: if there is no lake, or no permission.
            LogDamagedError: if the log of the table, or that of `messages`, is damaged.
            S3Error: if an object store cannot be reached, or denies access.
        """
        try:
            opened = self.find(table)
        except OSError as error:  # an object store's error contains the server's complete answer
            from commitlake.connectors.lake.reader import clean_engine_message
            from commitlake.connectors.storage.arrow_errors import s3_error_of

            self.check_readable()
            if (known := s3_error_of(error, self.s3)) is not None:
                raise known from None
            raise LakeError(f"{self.uri(table)} cannot be read: {clean_engine_message(str(error))}") from None
        if opened is not None:
            return opened
        self.check_readable()
        # Without `messages` the place is no lake at all, which is the better message.
        if table != "messages":
            self.table("messages")  # raises an error if this is not a lake
            raise NoTableError(
                f"the lake {self.root} has no table {table!r} yet, because nothing has been written to it"
            )
        self.check_messages_exist()
        raise LakeError(
            f"{self.root} is not a lake: expected a Delta table in {self.uri(table)}; 'commitlake archive' creates one"
        )

    def find(self, table: str) -> DeltaTable | None:
        """Open a table at its newest version; return None if the table or the lake does not exist.

        Raises:
            LogDamagedError: if the log of the table is damaged.
            S3Error: if an object store cannot be reached, or denies access.
        """
        from deltalake.exceptions import TableNotFoundError

        from commitlake.connectors.lake.delta import open_delta_table

        try:
            return open_delta_table(self.uri(table), self.s3)
        except TableNotFoundError:
            return None

    def table_at(self, table: str, version: int | None = None) -> DeltaTable:
        """Open a table at a version, by default the newest, without checking its log.

        Use it for a version that was checked before, and in repairs of damaged logs.

        Raises:
            DeltaError: if there is no such version, or the log cannot be read.
        """
        from deltalake import DeltaTable

        return DeltaTable(self.uri(table), version=version, storage_options=self.storage_options)

    def pin_versions(self) -> PinnedLake:
        """Return a view of the lake in which each table stays at the version that it has when it is first opened."""
        return PinnedLake(self.root, self.s3, self.packs)

    def has_log(self, table: str) -> bool:
        """Return True if a table's log has any file."""
        return table in self._tables_with_log([table])

    def list_follower_tables(self) -> list[str]:
        """Return the tables that are updated after each commit to `messages`, as far as they have a log."""
        return self._tables_with_log([table for table in LAKE_TABLES if table != "messages"])

    def list_topic_tables(self, *, includes_lost: bool = False) -> list[str]:
        """Return the typed tables of topics, by their paths in the lake.

        Args:
            includes_lost: also return those whose log is missing, although the lake has recorded their newest version.
        """
        import pyarrow.fs as pafs
        from deltalake.exceptions import TableNotFoundError

        from commitlake.connectors.lake.delta_log.newest_versions import NOTES

        try:
            files = self.open_folder()
        except TableNotFoundError:  # the folder does not exist
            return []
        folders = [TOPIC_TABLES, *([f"{TOPIC_TABLES}/{NOTES}"] if includes_lost else [])]
        infos = [
            info for folder in folders for info in files.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
        ]
        names = {info.base_name.removesuffix(".json") for info in infos}
        tables = sorted(f"{TOPIC_TABLES}/{name}" for name in names if name != NOTES)
        return tables if includes_lost else self._tables_with_log(tables)

    def _tables_with_log(self, tables: Sequence[str]) -> list[str]:
        import pyarrow.fs as pafs
        from deltalake.exceptions import TableNotFoundError

        try:
            files = self.open_folder()
        except TableNotFoundError:  # the folder does not exist
            return []
        return [
            table for table in tables if files.get_file_info(pafs.FileSelector(f"{table}/{LOG}", allow_not_found=True))
        ]

    def check_messages_exist(self) -> None:
        """Refuse a lake whose table `messages` has no log, although tables that are updated after it have one.

        Raises:
            LogDamagedError: if the log of `messages` is missing.
        """
        from commitlake.connectors.lake.delta_log.check import WAY_OUT, LogDamagedError

        if self.has_log("messages"):
            return
        others = self.list_follower_tables()
        if others:
            raise LogDamagedError(
                f"{self.uri('messages')}: the table's log {LOG} is missing, but the lake has "
                f"{' and '.join(others[:2])}, which are derived from that table. {WAY_OUT}"
            )

    def check_links(self) -> None:
        """Refuse a lake with a symbolic link in its folder, in the folder of a table, or in that of a log.

        Raises:
            UnsafeFileError: with the path of the first link.
        """
        if self.s3 is None:
            check_links(Path(self.root))

    def check_readable(self) -> None:
        """Check that the lake's folder or prefix can be listed, because the engines' own errors are hard to read.

        Raises:
            LakeError: if it is no folder that this user may read.
            S3Error: if an object store cannot be reached, or denies access.
        """
        if self.s3 is not None:
            self._open_bucket().check_access()
        else:
            _check_folder(Path(self.root))

    def check_writable(self) -> None:
        """Refuse a folder that holds other files or is owned by another program, before anything is written into it.

        Raises:
            LakeError: if the folder contains files but no lake, is not writable, or is to be a new lake in a table, in
                a broker's store, or in a file system without hard links.
            LogDamagedError: if the lake has lost its table `messages`.
            UnsafeFileError: if the lake contains a link.
            S3Error: if an object store cannot be reached, or the bucket cannot be listed.
        """
        self.check_links()
        try:
            self._check_location()
        except LakeError:
            self.check_messages_exist()
            raise

    def _check_location(self) -> None:
        if self.s3 is not None:
            # The log of `messages` last: another run may create the lake between the two.
            names = [name for name in self._open_bucket().list_first_names() if not name.startswith(STREAMS)]
            found = self._open_bucket().list_first_names(f"messages/{LOG}/")
            if names and not found:
                raise LakeError(f"{self.root} is not a lake: it holds other objects and no table 'messages'. {_NAME}")
            if not found:
                self._check_owner()
            return
        root = Path(self.root)
        if not root.exists():
            parent = next(folder for folder in root.absolute().parents if folder.exists())
            if not os.access(parent, os.W_OK | os.X_OK):
                raise LakeError(f"{root} cannot be created: {parent} cannot be written by this user")
            self._check_owner()
            self._check_hard_links(parent)
            return
        if not root.is_dir():
            raise LakeError(f"{root} is a file: expected the folder of a lake, or a new path")
        if not os.access(root, os.W_OK | os.X_OK):
            raise LakeError(f"{root} cannot be written by this user: give write permission, or run as its owner")
        # Checkpoints of a stream may be older than the first table, and another run may be making its probe just now.
        others = [path for path in root.iterdir() if path.name != STREAMS and not path.name.startswith(_PROBE)]
        if others and not (Path(self.uri("messages")) / LOG).is_dir():
            raise LakeError(f"{root} is not a lake: it holds other files and no table 'messages'. {_NAME}")
        if not others:
            self._check_owner()
            self._check_hard_links(root)

    def _open_bucket(self) -> S3Storage:
        from commitlake.connectors.storage.s3_storage import S3Storage

        return S3Storage(self.root, self.s3)

    def _check_owner(self) -> None:
        """Refuse to create a lake inside a table of another lake, or inside a folder of a broker's store."""
        from commitlake.connectors.lake.owned_folders import refuse_owned_folder

        refuse_owned_folder(self.root, "--lake", self.s3)

    def _check_hard_links(self, folder: Path) -> None:
        """Refuse to create a lake in a file system without hard links, by which deltalake makes a commit atomic.

        Volumes and DBFS of Databricks, and other mounted object stores, are such file systems.
        """
        probe = folder / f"{_PROBE}{secrets.token_hex(8)}"
        linked = probe.with_name(f"{probe.name}-link")
        os.close(create_file(probe, may_replace=False))
        try:
            os.link(probe, linked)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            raise LakeError(
                f"{self.root} cannot hold a lake: its file system has no hard links, which commits to Delta tables "
                "need. Name a folder on a disk, or s3://bucket/prefix"
            ) from None
        finally:
            for path in (probe, linked):
                with suppress(FileNotFoundError):
                    path.unlink()


class _CachedTable(NamedTuple):
    """A table, with the options by which it was opened."""

    table: DeltaTable
    options: dict[str, str] | None


@dataclass(frozen=True, slots=True)
class PinnedLake(Lake):
    """A view of a lake for one query: each table is opened once, and stays at that version.

    Opening a table reads its whole log since the newest checkpoint, which takes six requests in an object store. What
    only reads, and uses a table several times, takes such a lake; its tables may not be changed, as all users share
    them. A table that the lake does not have yet is looked for again. A table whose credentials were renewed since is
    opened again, at the same version. A pickled view has the versions, but not the tables: another process opens its
    own.

    Attributes:
        versions: versions of tables that are not opened yet, by name.
    """

    versions: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    _tables: dict[str, _CachedTable] = field(default_factory=dict, init=False, repr=False, compare=False)

    def find(self, table: str) -> DeltaTable | None:
        """Return a table at its pinned version, the newest one when it was first opened; None if it does not exist."""
        options, known = self.storage_options, self._tables.get(table)
        if known is not None and known.options == options:
            return known.table
        # The version stays, also when new credentials make it necessary to open the table again.
        version = self.versions.get(table) if known is None else known.table.version()
        opened = Lake.find(self, table) if version is None else Lake.table_at(self, table, version)
        if opened is not None:
            self._tables[table] = _CachedTable(opened, options)
        return opened

    def table_at(self, table: str, version: int | None = None) -> DeltaTable:
        """Return a table at a version, by default its pinned version; open the table if necessary."""
        known = self._tables.get(table)
        if known is not None and version in (None, known.table.version()):
            return self.table(table)
        return Lake.table_at(self, table, version)

    def pin_versions(self) -> PinnedLake:
        """Return this view, in which versions are pinned already."""
        return self

    def unpin_versions(self) -> Lake:
        """Return the lake without pinned versions: each table is opened at its newest version."""
        return Lake(self.root, self.s3, self.packs)

    def __reduce__(self) -> tuple[type[PinnedLake], tuple[str, S3Options | None, PackLocation, Mapping[str, int]]]:
        """Pickle the lake's location and the versions, because another process opens its own tables."""
        versions = {name: known.table.version() for name, known in self._tables.items()}
        return PinnedLake, (self.root, self.s3, self.packs, {**self.versions, **versions})


def _databricks_path_hint(lake_location: str) -> str:
    """Return a hint with the path that a `dbfs:` URI has on Databricks; empty for other URIs.

    The URI is not replaced by the path, because elsewhere the path would be a folder of this machine.
    """
    if not lake_location.lower().startswith("dbfs:/"):
        return ""
    path = f"/{lake_location[len('dbfs:/') :].lstrip('/')}"
    if not path.startswith("/Volumes/"):
        path = f"/dbfs{path}"
    return f". On Databricks, its path is {path}: jobs can read there, but Delta commits need a place with hard links"


def _check_folder(root: Path) -> None:
    if not root.exists():
        raise LakeError(f"{root} does not exist: expected the folder of a lake, which 'commitlake archive' creates")
    if not root.is_dir():
        raise LakeError(f"{root} is a file: expected the folder of a lake")
    if not os.access(root, os.R_OK | os.X_OK):
        raise LakeError(f"{root} cannot be read by this user: give read permission, or run as its owner")


def _s3_options() -> S3Options:
    from commitlake.connectors.storage.s3_clients import s3_options

    return s3_options()


def _import_catalog_lookup() -> ModuleType:
    from commitlake.connectors.catalog import lake_root_lookup

    return lake_root_lookup
