"""Records changes of the stores' configuration since the last archive run.

Only local stores are read. A topics.json that is missing or unreadable changes nothing: a file that is being written
must not look as if every topic had been deleted.
"""

from __future__ import annotations

import datetime
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.formats.rocketmq.topic_configs import load_config_file
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.lake.reader import QueryError
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.connectors.lake.store_config import GROUP, SETTING, TOPIC, Key, read_store_config
from commitlake.connectors.log_format.files import StoreFiles
from commitlake.connectors.log_format.queues import QueueLayout
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files.shipped_files import NoCopyError
from commitlake.connectors.reading.files.shipped_stores import open_small_files_folder
from commitlake.connectors.reading.files.store_files import open_store_files, store_folder_of_log
from commitlake.connectors.reading.single_records import LogRecords
from commitlake.connectors.reading.stores import Store, for_each_store, segment_size
from commitlake.connectors.storage.uris import is_uri
from commitlake.pipelines.verify.observed_delays import MAX_LEVELS, observe_delays
from commitlake.pipelines.verify.store_view import likely_file_size
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.integer_parsing import parse_int
from commitlake.schemas.layouts.rocketmq.indexfile import geometry_of
from commitlake.schemas.layouts.rocketmq.topics import GROUPS_FILE, GROUPS_TABLE, TOPICS_FILE, TOPICS_TABLE
from commitlake.schemas.safe_store_files import UnsafeFileError
from commitlake.schemas.tables.archive_runs import STORE_CONFIG

_INDEX = "index"
_LOGGER = logging.getLogger(__name__)
_LOOKED_AT = 100
"""Largest number of topics whose queue files are examined."""


def write_config_changes(
    lake: Lake,
    stores: Sequence[Store],
    run_id: str,
    recorded_at: datetime.datetime,
    problems: list[str] | None = None,
) -> DataFile | None:
    """Write the rows of `store_config` for configuration values that differ from the recorded ones.

    Args:
        recorded_at: Time at which the configuration was read.
        problems: Receives sentences on files that cannot be read.

    Returns:
        A file that no version refers to yet; None if nothing has changed. If the table cannot be read because a data
        file is damaged, everything counts as changed: messages must be archived before the broker deletes them.
    """
    rows = _collect_changes(lambda broker: _recorded_config(lake, broker), stores, (TOPIC, GROUP, SETTING), problems)
    return _write_rows(lake, [(broker, recorded_at, *key, value, run_id) for broker, key, value in rows], run_id)


def _collect_changes(
    read_known_config: Callable[[str], dict[Key, str]],
    stores: Sequence[Store],
    kinds: Sequence[str],
    problems: list[str] | None,
) -> list[tuple[str, Key, str | None]]:
    """Return the changed configuration values of all stores; several stores are read at a time.

    Args:
        read_known_config: returns what the lake has of a broker.
        kinds: kinds of the values to compare.
        problems: receives sentences on files that cannot be read.
    """

    def read_changes(store: Store) -> tuple[list[tuple[Key, str | None]], list[str]]:
        of_store: list[str] = []
        return list(_changes_of_store(read_known_config(store.broker), store, of_store, kinds)), of_store

    rows = []
    # Lists by store rather than one shared list, because stores are read by several threads.
    for store, (changes, of_store) in zip(stores, for_each_store(read_changes, stores), strict=True):
        rows += [(store.broker, key, value) for key, value in changes]
        if problems is not None:
            problems += of_store
    return rows


def _write_rows(lake: Lake, rows: Sequence[tuple[Any, ...]], run_id: str) -> DataFile | None:
    if not rows:
        return None
    names = STORE_CONFIG.names
    columns = [list(column) for column in zip(*rows, strict=True)]
    table = pa.table(dict(zip(names, columns, strict=True)), schema=arrow_schema(STORE_CONFIG))
    return write_plain_file(table, lake, "store_config", f"part-{run_id}.zstd.parquet")


def write_topic_and_group_changes(
    lake: Lake,
    stores: Sequence[Store],
    run_id: str,
    recorded_at: datetime.datetime,
    problems: list[str] | None = None,
) -> DataFile | None:
    """Write rows of `store_config` for changed topics and groups only, for a run without new messages.

    Other settings follow from files that only change with new messages.

    Returns:
        A file that no version refers to yet; None if nothing has changed, or if the table cannot be read.
    """
    try:
        rows = _collect_changes(lambda broker: read_store_config(lake, broker).values, stores, (TOPIC, GROUP), problems)
    except (QueryError, LakeError):  # the next run with new messages records everything
        return None
    return _write_rows(lake, [(broker, recorded_at, *key, value, run_id) for broker, key, value in rows], run_id)


def _recorded_config(lake: Lake, broker: str) -> dict[Key, str]:
    try:
        return read_store_config(lake, broker).values
    except QueryError as error:
        _LOGGER.warning(
            "store_config of %s cannot be read: %s; all of it is archived again. 'commitlake maintain --repair' "
            "removes damaged files",
            lake.root,
            error,
        )
        return {}


def _changes_of_store(
    known_config: dict[Key, str], store: Store, problems: list[str], kinds: Sequence[str]
) -> Iterator[tuple[Key, str | None]]:
    with open_small_files_folder(store.root) as root:
        if root is not None:
            yield from _changes_in_folder(root, known_config, store, problems, kinds)


def _changes_in_folder(
    root: Path, known_config: dict[Key, str], store: Store, problems: list[str], kinds: Sequence[str]
) -> Iterator[tuple[Key, str | None]]:
    readers: dict[str, Callable[[], dict[str, Any] | None]] = {
        TOPIC: lambda: _load_config_entries(root, TOPICS_FILE, TOPICS_TABLE, problems),
        GROUP: lambda: _load_config_entries(root, GROUPS_FILE, GROUPS_TABLE, problems),
        SETTING: lambda: read_broker_settings(store, problems),
    }
    for kind in kinds:
        found = readers[kind]()
        if found is None:
            continue
        current = {(kind, _printable_name(name)): _canonical_json(value) for name, value in found.items()}
        yield from ((key, value) for key, value in current.items() if known_config.get(key) != value)
        if kind != SETTING:  # a setting that is no longer in a file was still the store's
            yield from ((key, None) for key in known_config if key[0] == kind and key not in current)


def _load_config_entries(root: Path, name: str, table: str, problems: list[str]) -> dict[str, Any] | None:
    """Return the entries of a configuration file; None if it is missing or cannot be read."""
    try:
        read = load_config_file(root, name, table)
    except UnsafeFileError as error:
        problems.append(f"{error}; the configuration in it is not archived")
        return None
    if read.is_backup:
        problems.append(f"{root / name}: {read.problem}; {root / read.name} is archived instead")
    elif read.problem:
        problems.append(f"{root / name}: {read.problem}; the configuration in it is not archived")
    return None if read.content is None else read.content[table]


def _printable_name(name: object) -> str:
    """Return a name with characters that UTF-8 cannot encode replaced."""
    return str(name).encode("utf-8", "replace").decode()


def _canonical_json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def read_store_topics(store: Store) -> dict[str, Any]:
    """Return the topics in a store's own settings, by name; empty if they cannot be read."""
    with open_small_files_folder(store.root) as root:
        found = None if root is None else _load_config_entries(root, TOPICS_FILE, TOPICS_TABLE, [])
    return {_printable_name(name): value for name, value in (found or {}).items()}


def read_broker_settings(store: Store, problems: list[str] | None = None) -> dict[str, Any]:
    """Return the settings of a store's broker that can be derived from the store's files.

    Empty for a store in an object store that `commitlake ship` did not copy.

    Args:
        problems: Receives a sentence if queues or indexes cannot be read, whose settings are left out then.
    """
    found: dict[str, Any] = {}
    if store.format.brokers.has_archived_settings:
        try:
            _add_settings_from_files(store, found)
        except (StoreError, OSError) as error:
            if problems is not None:
                problems.append(f"{error}; settings that follow from queues and indexes are not archived")
    return found


def _add_settings_from_files(store: Store, settings: dict[str, Any]) -> None:
    if len(store.segments) > 1:  # a single file may be a truncated copy
        settings["segment_size_bytes"] = segment_size(store)
    try:
        files = open_store_files(store_folder_of_log(store.root))
    except NoCopyError:
        return
    queues, dialect = store.format.queues.layout, store.format.dialects.dialect_of(store.segments)
    if size := _file_size(files, queues):
        settings["queue_file_size_bytes"] = size
        levels = _list_level_numbers(files, f"{queues.folder}/{dialect.schedule_topic}")
        folders = [(dialect.schedule_topic, number) for number in levels]
        records = LogRecords(store.segments, store.format)
        if delays := observe_delays(files, folders, dialect.schedule_topic, size, queues, records):
            settings["delay_levels_ms"] = {str(level): delay for level, delay in sorted(delays.items())}
    if (batches := store.format.queues.batch_layout) and (size := _file_size(files, batches)):
        settings["batch_queue_file_size_bytes"] = size
    for name in _list_files(files, _INDEX, 1):
        with suppress(OSError, LayoutError):
            geometry = geometry_of(files.size_of(f"{_INDEX}/{name}"))
            settings |= {"index_slots": geometry.slots, "index_entries": geometry.entries}


def _list_level_numbers(files: StoreFiles, folder: str) -> list[int]:
    names = _list_folders(files, folder, MAX_LEVELS)
    return sorted(number for name in names if (number := parse_int(name, 0, MAX_LEVELS - 1)) is not None)


def _file_size(files: StoreFiles, layout: QueueLayout) -> int | None:
    """Return the most frequent size of the queue files that were examined; None if there are none."""
    sizes = Counter[int]()
    for topic in _list_folders(files, layout.folder, _LOOKED_AT):
        for queue in _list_folders(files, f"{layout.folder}/{topic}", 1):
            folder = f"{layout.folder}/{topic}/{queue}"
            for name in _list_files(files, folder, 2):
                with suppress(OSError):
                    sizes[files.size_of(f"{folder}/{name}")] += 1
    # By the most frequent size, since single files may be truncated.
    return likely_file_size(sizes, layout)


def _list_folders(files: StoreFiles, folder: str, limit: int) -> list[str]:
    """Return the first folders in a folder, without links; none if it is a link, no folder, or cannot be read."""
    if is_uri(place := files.location_of(folder)):
        return files.folders_in(folder)[:limit]
    return [entry.name for entry in _list_entries(place, limit) if entry.is_dir(follow_symlinks=False)]


def _list_files(files: StoreFiles, folder: str, limit: int) -> list[str]:
    """Return the first files in a folder, without links; none if it is a link, no folder, or cannot be read."""
    if is_uri(place := files.location_of(folder)):
        return files.files_in(folder)[:limit]
    return [entry.name for entry in _list_entries(place, limit) if entry.is_file(follow_symlinks=False)]


def _list_entries(folder: str, limit: int) -> list[os.DirEntry[str]]:
    """Return the first entries of a folder of this machine; none if it is a link, no folder, or cannot be read."""
    if os.path.islink(folder):  # noqa: PTH114 (an entry's path is a text)
        return []
    with suppress(OSError), os.scandir(folder) as found:
        return list(islice(found, limit))
    return []
