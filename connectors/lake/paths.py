"""The locations of a lake's tables and packs, and checks of its folder."""

from __future__ import annotations

import errno
import os
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

from commitlake.connectors.catalog.names import is_catalog_place
from commitlake.connectors.lake.log_names import LOG
from commitlake.connectors.object_store.options import S3Options
from commitlake.connectors.object_store.uris import has_scheme, is_s3, parse_s3_uri
from commitlake.schemas.errors import CommitLakeError, ExitCode
from commitlake.schemas.store_files import create_file

STREAMS = "_streams"
"""Folder with the checkpoints of streams into a lake; it may exist before the first table."""
_NAME = "Name an empty folder or a new one"
_PROBE = ".commitlake-probe-"
_NO_LINKS = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})
# deltalake misreads URLs of folders with these characters.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\\[\]^|#?]|%[0-9A-Fa-f]{2}")


def local_folder(place: str) -> Path:
    """Return the absolute path, without `..`, of a local folder given as a path or a `file:` URI; links stay."""
    return Path(os.path.abspath(unquote(urlsplit(place).path) if place.startswith("file:") else place))  # noqa: PTH100


class LakeError(CommitLakeError):
    """A folder is not, or cannot become, a lake; the message is for a user."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True, slots=True)
class LakePaths:
    """The locations of a lake's tables and packs, by the folder or URI that holds them.

    Attributes:
        root: a folder, as a path or a `file:` URI, or `s3://bucket/prefix`. It may be given as `catalog.schema`, the
            name of a lake in Unity Catalog.
        s3: the object store, by default that of the environment; None if the lake is in a folder. It is determined
            once, on the driver, and sent to workers with the paths.

    Raises:
        LakeError: if a lake cannot be there: another kind of store, or a folder name that deltalake misreads.
        S3Error: if a URI of an object store names no bucket.
        CatalogError: if a catalog does not have the name.
    """

    root: str
    s3: S3Options | None = None

    def __post_init__(self) -> None:
        if is_catalog_place(self.root):
            object.__setattr__(self, "root", _lookup().find_lake(self.root))  # the class is frozen
        if is_s3(self.root):
            object.__setattr__(self, "root", str(parse_s3_uri(self.root)))
            object.__setattr__(self, "s3", self.s3 or _finding().s3_options())
            return
        if self.root.startswith("file:"):
            object.__setattr__(self, "root", unquote(urlsplit(self.root).path))
        if has_scheme(self.root):
            expected = f"{self.root!r} cannot hold a lake: expected a folder, or s3://bucket/prefix"
            raise LakeError(expected + _path_on_databricks(self.root))
        unsafe = _UNSAFE.search(os.path.abspath(self.root))  # noqa: PTH100 (pathlib has no such function)
        if unsafe is not None:
            raise LakeError(
                f"{self.root!r} cannot hold a lake: its path has {unsafe[0]!r}, which the library for Delta tables "
                "does not support. Name another folder"
            )

    @property
    def messages(self) -> str:
        """Table with one row per message."""
        return self._table("messages")

    @property
    def bodies(self) -> str:
        """Folder of the packs of bodies."""
        return self._table("bodies")

    @property
    def quarantine(self) -> str:
        """Table of damaged ranges of logs."""
        return self._table("quarantine")

    @property
    def gaps(self) -> str:
        """Table of missing ranges of logs."""
        return self._table("gaps")

    @property
    def message_keys(self) -> str:
        """Table of the places of messages by business key."""
        return self._table("message_keys")

    @property
    def edges(self) -> str:
        """Table of the steps of each message through brokers and clients."""
        return self._table("edges")

    @property
    def profiles(self) -> str:
        """Table of counts and checksums of archived messages, by topic, queue and window."""
        return self._table("profiles")

    @property
    def topic_minutes(self) -> str:
        """Table of messages counted by topic, queue, tag, kind and minute."""
        return self._table("topic_minutes")

    @property
    def quality_results(self) -> str:
        """Table of the results of each run's expectations."""
        return self._table("quality_results")

    @property
    def store_config(self) -> str:
        """Table of the stores' settings over time."""
        return self._table("store_config")

    @property
    def consumer_offsets(self) -> str:
        """Table of group offsets over time."""
        return self._table("consumer_offsets")

    @property
    def consumptions(self) -> str:
        """Table of deliveries to applications, from consume logs of JMQ stores."""
        return self._table("consumptions")

    @property
    def subscriptions(self) -> str:
        """Table of the groups' subscriptions over time."""
        return self._table("subscriptions")

    @property
    def replays(self) -> str:
        """Table of the events of each replay."""
        return self._table("replays")

    @property
    def replay_messages(self) -> str:
        """Table of the outcome of each replayed message."""
        return self._table("replay_messages")

    @property
    def replay_rows(self) -> str:
        """Table of messages that replays change or copy."""
        return self._table("replay_rows")

    @property
    def erasures(self) -> str:
        """Table of erasures."""
        return self._table("erasures")

    @property
    def evidence(self) -> str:
        """Table of signed documents about runs, audits and erasures."""
        return self._table("evidence")

    @property
    def archive_runs(self) -> str:
        """Table with one row per finished run."""
        return self._table("archive_runs")

    @property
    def streams(self) -> str:
        """Folder of the checkpoints of streams that archive into the lake."""
        return self._table(STREAMS)

    @property
    def page(self) -> str | None:
        """Page about the newest archive run; None for a lake in an object store."""
        return None if self.s3 is not None else self._table("quality.html")

    def _table(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def check_readable(self) -> None:
        """Check that an object store can be listed; the engines' own errors have many lines.

        Raises:
            S3Error: if it cannot be reached, or denies access.
        """
        if self.s3 is not None:
            _access().first_names(self.s3, self.root, "")

    def check_writable(self) -> None:
        """Refuse a folder that holds other files or is owned by another program, before anything is written into it.

        Raises:
            LakeError: if the folder contains files but no lake, is not writable, or is to be a new lake in a table, in
                a broker's store, or in a file system without hard links.
            S3Error: if an object store cannot be reached, or the bucket cannot be listed.
        """
        if self.s3 is not None:
            found = _access().first_names(self.s3, self.root, f"messages/{LOG}/")
            others = [name for name in _access().first_names(self.s3, self.root, "") if not name.startswith(STREAMS)]
            if others and not found:
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
            raise LakeError(f"{root} cannot be written by this user")
        others = [path for path in root.iterdir() if path.name != STREAMS and not path.name.startswith(_PROBE)]
        if others and not (Path(self.messages) / LOG).is_dir():
            raise LakeError(f"{root} is not a lake: it holds other files and no table 'messages'. {_NAME}")
        if not others:
            self._check_owner()
            self._check_hard_links(root)

    def _check_owner(self) -> None:
        """Refuse a new lake in a table of another lake, or in a folder of a broker's store."""
        from commitlake.connectors.lake.owned_folders import check_no_owner

        check_no_owner(self.root, "--lake")

    def _check_hard_links(self, folder: Path) -> None:
        """Refuse a new lake in a file system without hard links, by which deltalake makes a commit atomic.

        Volumes and DBFS of Databricks, and other mounted object stores, are such file systems.
        """
        probe = folder / f"{_PROBE}{secrets.token_hex(8)}"
        linked = probe.with_name(f"{probe.name}-link")
        os.close(create_file(probe, replace=False))
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


def _path_on_databricks(place: str) -> str:
    """Return a hint with the path that a `dbfs:` URI has on Databricks; empty for other URIs.

    The URI is not replaced by the path, because elsewhere the path would be a folder of this machine.
    """
    if not place.lower().startswith("dbfs:/"):
        return ""
    path = f"/{place[len('dbfs:/') :].lstrip('/')}"
    if not path.startswith("/Volumes/"):
        path = f"/dbfs{path}"
    return f". On Databricks, its path is {path}: jobs can read there, but Delta commits need a place with hard links"


def _access() -> ModuleType:
    from commitlake.connectors.object_store import access

    return access


def _finding() -> ModuleType:
    from commitlake.connectors.object_store import finding

    return finding


def _lookup() -> ModuleType:
    from commitlake.connectors.catalog import lookup

    return lookup
