"""Options that locate a lake and its message bodies, for every job that reads a lake."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit

from commitlake.connectors.lake.lake import BODIES, Lake
from commitlake.connectors.lake.packs.location import PackLocation
from commitlake.connectors.storage.uris import is_uri
from commitlake.jobs.arguments.s3 import HasS3Options, S3Arguments, set_s3_environment
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.options import option
from commitlake.jobs.cli.permissions import check_lake_is_readable

if TYPE_CHECKING:
    from commitlake.connectors.lake.packs.pack_stores import PackStore

BODIES_HELP = "where the packs of bodies are: a folder, or s3://bucket/prefix (default: 'bodies' in the lake)"


@dataclass(frozen=True, kw_only=True)
class LakeArguments(S3Arguments, after={S3Arguments: "bodies"}):
    """Options that locate a lake and its message bodies."""

    lake: str = option(
        "the lake: a folder, s3://bucket/prefix, or catalog.schema of Unity Catalog", metavar="PLACE", required=True
    )
    bodies: str | None = option(BODIES_HELP, metavar="PLACE")


class LakeLocationOptions(HasS3Options, Protocol):
    """Interface of options that may name a lake."""

    @property
    def lake(self) -> str | None:
        """Location of the lake; None only before the options are checked."""


@runtime_checkable
class BodyLocationOptions(Protocol):
    """Interface of options that may set the location of the packs, the files that contain message bodies."""

    @property
    def bodies(self) -> str | None:
        """Root folder or URI of the packs; None for the folder in the lake."""


def open_lake_argument(arguments: LakeLocationOptions) -> Lake:
    """Return the lake that the arguments name, with the location of its packs, if they have the option for it.

    The options of the object store are set in this process's environment, from which all code that opens a table, a
    pack or a JVM reads them.

    Raises:
        LakeError: if the lake cannot be read.
        S3Error: if it, or its packs, are in an object store without a bucket's name, or the endpoint is not a URL.
    """
    set_s3_environment(arguments)
    assert arguments.lake is not None
    bodies = arguments.bodies if isinstance(arguments, BodyLocationOptions) else None
    lake = Lake(arguments.lake, packs=PackLocation(bodies or ""))
    check_lake_is_readable(lake)
    return lake


def check_packs_location(lake: Lake) -> None:
    """Check that the folder of `--bodies` exists; without the option, the default folder may be missing.

    Raises:
        JobError: if `--bodies` names a folder that does not exist.
    """
    folder = _to_local_folder(lake.bodies_root)
    if lake.bodies_root != lake.uri(BODIES) and folder is not None and not folder.is_dir():
        found = "a file" if folder.exists() else "none"
        raise JobError(
            f"--bodies {lake.bodies_root}: expected the folder with the bodies of the lake, found {found}",
            "leave --bodies out if the packs are in the lake's own folder 'bodies'",
        )


def open_packs(lake: Lake) -> PackStore:
    """Open the storage of the lake's packs, the files that contain message bodies.

    Raises:
        JobError: if `--bodies` names a folder that does not exist.
        PackStoreError: if packs cannot be stored in this kind of place.
    """
    from commitlake.connectors.lake.packs.pack_stores import open_pack_store

    check_packs_location(lake)
    return open_pack_store(lake.packs)


def _to_local_folder(location: str) -> Path | None:
    """Return the local folder of a location; None if it is in an object store."""
    if location.startswith("file:"):
        return Path(unquote(urlsplit(location).path))
    return None if is_uri(location) else Path(location)
