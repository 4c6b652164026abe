"""Restores `messages` to a version before a damaged data file was added, if the stores still have all later messages.

The next archive run then archives them again, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from commitlake.connectors.lake.archive_log import newest_commit
from commitlake.connectors.lake.delta import delta_table, storage_options
from commitlake.connectors.lake.file_actions import file_actions
from commitlake.connectors.lake.log_files import LogFolder, LogListing, entry_name
from commitlake.connectors.lake.paths import LakePaths
from commitlake.pipelines.maintenance.data_check import DataDamage
from commitlake.pipelines.maintenance.log_repair import LogRepair, added_files


def plan_rewind(lake: LakePaths, damages: Sequence[DataDamage], first_offsets: Mapping[str, int]) -> LogRepair | str:
    """Plan the restoration of `messages` to the version before its damaged files were added.

    Args:
        lake: locations of the tables.
        damages: damaged data files of `messages`.
        first_offsets: by broker, the first physical offset that its store still has.

    Returns:
        The plan, or the reason why it is impossible.
    """
    options = storage_options(lake.messages, lake.s3)
    folder = LogFolder(lake.messages, options, lake.s3)
    listing = folder.read_listing()
    first = _version_before(folder, listing, {unquote(damage.file.path) for damage in damages})
    if first is None:
        return "the log no longer has the entries that added the damaged files"
    try:
        table = DeltaTable(lake.messages, version=first - 1, storage_options=options)
        then = newest_commit(table)
    except DeltaError:
        return f"version {first - 1} of messages, the one before the damaged files, can no longer be read"
    paths = [unquote(path) for path in file_actions(table).column("path").to_pylist()]
    if any(not info.is_file for info in folder.files.get_file_info(paths)):
        return f"data files of version {first - 1} of messages, the one before the damaged files, no longer exist"
    now = newest_commit(delta_table(lake.messages, lake.s3))
    ends = {broker: progress.end for broker, progress in then[1].stores.items()} if then else {}
    for broker, progress in now[1].stores.items() if now else ():
        end = ends.get(broker, 0)
        if end == progress.end:
            continue
        if broker not in first_offsets:
            return f"{broker} has archived messages since then, but is not among the given stores"
        if first_offsets[broker] > end and (broker in ends or first_offsets[broker] > 0):
            return f"the store of {broker} starts at {first_offsets[broker]}, expected {end} or less"
    return LogRepair("messages", [], (), first, listing.newest)


def _version_before(folder: LogFolder, listing: LogListing, paths: set[str]) -> int | None:
    """Return the version that added the first of the given files; None if the log does not have all of them."""
    left = set(paths)
    for version in sorted(listing.entries, reverse=True):
        left -= added_files(folder.read(entry_name(version)))
        if not left:
            return version if version > 0 else None
    return None
