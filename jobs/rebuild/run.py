"""Rebuild and salvage with a progress display, on this machine's cores or on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.reading.files.store_files import open_small_files, open_store_files, store_folder_of_log
from commitlake.connectors.reading.stores import Store, find_stores
from commitlake.jobs.arguments.runner import make_runner
from commitlake.jobs.arguments.similar_names import known_names_hint, suggest_similar_name
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.progress import runner_progress
from commitlake.jobs.rebuild.arguments import RebuildOptions
from commitlake.pipelines.rebuild.run import RebuildResult, rebuild_store
from commitlake.pipelines.rebuild.settings import RequestedSettings
from commitlake.pipelines.salvage.run import SalvageResult, salvage_store
from commitlake.schemas.safe_store_files import remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from commitlake.connectors.runtime.runner import Runner


def run_rebuild(
    command: RebuildOptions,
    store: Store,
    target_folder: Path,
    requested_settings: RequestedSettings,
    *,
    owns_lock: bool = False,
) -> RebuildResult:
    """Rebuild the queues, indexes and other files of a store from its log into a folder.

    Args:
        target_folder: The target folder.
        requested_settings: The broker's settings as the user gave them.
        owns_lock: Whether this process holds the store's lock.
    """
    with _open_runner_with_progress(command, f"rebuilding {command.store}", store) as (runner, advance):
        rebuilt = rebuild_store(
            store, target_folder, requested_settings, runner=runner, advance=advance, owns_lock=owns_lock
        )
    _check_requested_topics(store, target_folder, requested_settings)
    return rebuilt


def _check_requested_topics(store: Store, target_folder: Path, requested_settings: RequestedSettings) -> None:
    """Raise an error for a requested topic that the store does not have, after removing the files that were made.

    Otherwise, the same command with the correct names would find a folder that is not empty.
    """
    if not requested_settings.topics:
        return
    names = store.format.queues.folders
    files = open_store_files(store_folder_of_log(store.root))
    made = {topic for name in names for topic in _subfolder_names(target_folder / name)}
    had = {topic for name in names for topic in files.folders_in(name)}
    for topic in requested_settings.topics:
        if topic not in made | had:
            for name in names:
                remove_tree(target_folder / name)
            raise JobError(
                f"--topic: neither the log nor the queues contain a topic {topic!a}.{suggest_similar_name(topic, had)}",
                known_names_hint(had),
            )


def _subfolder_names(path: Path) -> set[str]:
    return {each.name for each in path.iterdir()} if path.is_dir() else set()


def run_salvage(
    command: RebuildOptions, store: Store, target_folder: Path, requested_settings: RequestedSettings
) -> tuple[SalvageResult, RebuildResult]:
    """Write a copy of the log without damage, and rebuild queues and indexes for it."""
    with _open_runner_with_progress(command, f"salvaging {command.store}", store) as (runner, advance):
        salvaged = salvage_store(store, target_folder, runner=runner, advance=advance)
    (clean,) = find_stores(str(target_folder), store.broker, formats=all_formats().select_only(store.format))
    return salvaged, run_rebuild(command, clean, target_folder, complete_settings(store, requested_settings))


def complete_settings(store: Store, requested_settings: RequestedSettings) -> RequestedSettings:
    """Return the requested broker settings; missing ones are derived from the damaged store's remaining files."""
    from commitlake.pipelines.rebuild.settings import find_settings

    with open_small_files(store.root) as root:
        files = open_store_files(store_folder_of_log(store.root))
        dialect = store.format.dialects.dialect_of(store.segments)
        found = find_settings(root, requested_settings, store.format, dialect, store.segments, files)
    return RequestedSettings(
        requested_settings.topics,
        found.queue_file_size,
        found.index_slots,
        found.index_entries,
        found.index_tags,
        found.delay_levels_ms,
        observed_levels=found.observed_levels,
        batch_file_size=found.batch_file_size,
        close_heads=store.segments[0].base_offset == 0,
    )


@contextmanager
def _open_runner_with_progress(
    command: RebuildOptions, label: str, store: Store
) -> Iterator[tuple[Runner, Callable[[int], None]]]:
    """Yield the runner of the tasks, and a function that reports the number of bytes of the log processed so far."""
    runner = make_runner(command, "rebuild")
    size = sum(segment.file_size for segment in store.segments)
    with runner_progress(runner, label, size, quiet=command.quiet) as advance:
        yield runner, advance
