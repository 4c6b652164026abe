"""In-place rebuild, which replaces a store's own files while it holds the store's lock."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

from commitlake.broker_lite.errors import StoreLockedError
from commitlake.broker_lite.stores.engine.store_lock import StoreLock
from commitlake.connectors.reading.errors import UnsupportedStoreError
from commitlake.connectors.reading.newer_data import find_other_logs
from commitlake.connectors.reading.snapshots import log_range, make_read_log
from commitlake.connectors.reading.stores import Store
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.rebuild.arguments import RebuildOptions
from commitlake.jobs.rebuild.run import run_rebuild
from commitlake.pipelines.rebuild.errors import BusyStoreError, UnknownDelaysError
from commitlake.pipelines.rebuild.run import RebuildResult
from commitlake.pipelines.rebuild.settings import RequestedSettings
from commitlake.pipelines.rebuild.store_replacement import Replacement
from commitlake.schemas.errors import UsageError
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.shipped_manifest import make_fetch_hint


def rebuild_in_place(
    command: RebuildOptions, store: Store, requested_settings: RequestedSettings
) -> RebuildResult | None:
    """Rebuild a store's files in a new folder, verify them, and replace the store's own files by them.

    Returns:
        None if this run only finished an interrupted replacement.

    Raises:
        BusyStoreError: if a broker has the store open.
        DisagreementError: if the new files do not match the log; nothing is replaced then.
        UsageError: if the store is not on a disk.
        UnsupportedStoreError: if segments of its log are in other folders.
    """
    if store.is_remote:
        raise UsageError(
            f"--in-place: expected a store on a local or mounted disk, found {store.root}{make_fetch_hint(store.root)}"
        )
    log = make_read_log(store)
    for other in find_other_logs(log, None, log_range(store, is_live=False).end) if log is not None else ():
        raise UnsupportedStoreError(
            f"{other}: messages in this log are not read, and would be missing in the rebuilt queues, so nothing was "
            "rebuilt"
        )
    root = Path(store.root).parent.resolve()  # the store's own parent, even if its log folder is a link
    try:
        lock = StoreLock(root)
    except StoreLockedError as error:
        raise BusyStoreError(str(error)) from None
    try:
        replacement = Replacement(root, store.format, log_range(store, is_live=False), requested_settings)
        replacement.check_replaceable()
        if replacement.clear_new_files():
            _print_line(command, "the log has changed since the interrupted run: everything is rebuilt")
        if replacement.has_started:
            is_all = replacement.has_started_with_same_options
            _replace_files(command, replacement)
            if is_all:
                return None
        rebuilt = run_rebuild(command, store, replacement.out, requested_settings, owns_lock=True)
        taken = replacement.copy_queues_without_records(rebuilt.settings)
        _check_assumed_delays(rebuilt)
        replacement.verify_new_files(
            store, rebuilt.shifted_queues, requested_settings.topics, rebuilt.settings.delay_levels_ms or None
        )
        if taken:
            _print_line(command, f"{format_count(taken, 'queue')} without a record in the log: files are kept")
        _replace_files(command, replacement)
    finally:
        lock.release()
    return replace(rebuilt, out=root)


def _check_assumed_delays(rebuilt: RebuildResult) -> None:
    """Raise an error, before any file is replaced, if delay levels assumed for queue entries are probably wrong."""
    if rebuilt.assumed_delays and rebuilt.has_nondefault_delays:
        levels = ", ".join(str(level) for level, _ in rebuilt.assumed_delays)
        count = sum(count for _, count in rebuilt.assumed_delays)
        raise UnknownDelaysError(
            f"this broker has its own messageDelayLevel, but the delays of its levels {levels}, which "
            f"{format_count(count, 'message has', 'messages have')}, are not known; nothing was replaced"
        )


def _replace_files(command: RebuildOptions, replacement: Replacement) -> None:
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    for path in replacement.replace_files(stamp):
        _print_line(command, f"kept {path}")


def _print_line(command: RebuildOptions, line: str) -> None:
    if not command.quiet:
        print_line(line)
