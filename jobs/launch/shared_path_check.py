"""Check that the places in a job's arguments can be reached from the machine that runs the job.

A folder on a local disk of this machine does not exist there or, worse, is another folder with the same name. A folder
counts as shared if it is on a network file system, or if the setting `spark.commitlake.sharedFolders` names it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from commitlake.connectors.storage.uris import is_uri
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.settings_check import option_names_in_help

SETTING = "spark.commitlake.sharedFolders"
"""Folders that all machines of the cluster have at the same place, separated by commas."""
_METAVARS = frozenset({"DIR", "FILE", "PATH", "PLACE", "STORE", "FILE|URL"})
_NETWORK = (
    "nfs", "cifs", "smb", "ceph", "lustre", "gluster", "gpfs", "beegfs", "orangefs", "pvfs", "afs", "ocfs2", "gfs2",
    "9p", "virtiofs", "fuse.", "wekafs", "panfs", "mapr",
)  # fmt: skip
_MOUNTS = Path("/proc/self/mounts")


def check_shared_places(
    parser: argparse.ArgumentParser, option_values: Mapping[str, object], shared_folders: Sequence[str]
) -> None:
    """Raise an error for paths in a job's arguments that only this machine can reach, not the cluster.

    Args:
        option_values: values of its options by name.
        shared_folders: folders that the user, or the cluster's administrator, has named as shared.

    Raises:
        JobError: for the first place that is not shared.
    """
    for name, place in paths_in_options(parser, option_values):
        path = Path(unquote(urlsplit(place).path)) if place.startswith("file:") else Path(place)
        if is_uri(place) and not place.startswith("file:"):
            continue
        if not path.is_absolute():
            raise JobError(
                f"{name} {place}: expected an absolute path, because the job runs on another machine, in another "
                "folder",
                "name a place in an object store, or a folder that all machines of the cluster have at the same place",
            )
        if ".." in path.parts or not (
            _is_in_any_folder(path, shared_folders) or file_system_type(path).startswith(_NETWORK)
        ):
            raise JobError(
                f"{name} {place}: expected a place that all machines of the cluster share, found a local file system "
                f"({file_system_type(path) or 'unknown'}) of this machine, on which the job does not run",
                f"use s3://... or --deploy-mode client; if they all have this folder, --conf {SETTING}={path.parent}",
            )


def paths_in_options(parser: argparse.ArgumentParser, option_values: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield an (option name, path or URI) pair for each location in a job's arguments; lists are split."""
    for action in parser._actions:  # noqa: SLF001 (no other way)
        value = option_values.get(action.dest)
        if action.metavar not in _METAVARS or not value or value == argparse.SUPPRESS:
            continue
        name = next((name for name in option_names_in_help(action) if name.startswith("--")), str(action.metavar))
        for each in value if isinstance(value, list) else str(value).split(","):
            yield name, str(each).strip()


def file_system_type(path: Path) -> str:
    """Return the type of the file system that contains a path; empty if it is unknown."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    found = [line.split(" ")[1:3] for line in lines]
    mounts = {Path(folder.replace(r"\040", " ")): kind for folder, kind in found}
    real = path.resolve()
    return next((mounts[folder] for folder in (real, *real.parents) if folder in mounts), "")


def _is_in_any_folder(path: Path, folders: Sequence[str]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders if Path(folder).is_absolute())
