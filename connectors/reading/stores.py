"""Stores that a path names, and their segments.

A store is a folder with a `commitlog` or a `journal` folder in it, which determines its format. A path may name either
folder. The broker's name is, in this order: the option `broker`, the path component that `{broker}` stands for, the
name in the manifest of a shipped store, the name of the store folder, or of its parent if that is just `store`. No data
from a store's files becomes part of a path, except names in a manifest, which are checked.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import translate
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pyarrow.fs as pafs

from commitlake.connectors.log_format.files import Segment
from commitlake.connectors.log_format.format import Format, Formats
from commitlake.connectors.reading.errors import EmptyStoreError, StoreError, UnsupportedStoreError
from commitlake.connectors.reading.files.concurrent_reads import LOCAL_THREADS, REMOTE_THREADS, map_concurrently
from commitlake.connectors.reading.files.log_folders import find_log_folders, find_segment_files
from commitlake.connectors.reading.files.shipped_stores import (
    check_no_versions,
    read_shipped_manifest,
    resolve_filesystem,
    shipped_file_sizes,
)
from commitlake.connectors.reading.unread_warnings import (
    UNREAD,
    find_appended_logs,
    format_folder_names,
)
from commitlake.connectors.storage.uris import is_uri, scheme_prefix
from commitlake.schemas import shipped_manifest
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.segment_names import is_segment_name, parse_segment_name
from commitlake.schemas.safe_store_files import UnsafeFileError, files_in

logger = logging.getLogger(__name__)

_R = TypeVar("_R")
_GENERIC_STORE_NAME = "store"
_MAX_PARTS = 1000  # largest number of segments in a distance from which their size is derived
_PLACEHOLDER = "{broker}"
_PERMISSION_HINT = "run as the broker's user, or give read permission"
_WILDCARDS = re.compile(r"[*?\[]|" + re.escape(_PLACEHOLDER))


@dataclass(frozen=True, slots=True)
class Store:
    """The store of one broker, with the segments of its log.

    Attributes:
        broker: the store's name.
        root: its `commitlog` or `journal` folder, as a path or URI.
        segments: its files, in order of their offsets.
        format: the format of its records and indexes.
    """

    broker: str
    root: str
    segments: tuple[Segment, ...]
    format: Format

    @property
    def folder(self) -> str:
        """The store's folder, as a path or URI."""
        return self.root.rsplit("/", 1)[0]

    @property
    def is_remote(self) -> bool:
        """True if the store is in an object store or HDFS, at a URI."""
        return is_uri(self.root)


def for_each_store(function: Callable[[Store], _R], stores: Sequence[Store]) -> list[_R]:
    """Call a function for every store, several at a time, and return the results in order of the stores."""
    is_remote = any(store.is_remote for store in stores)
    return map_concurrently(function, stores, REMOTE_THREADS if is_remote else LOCAL_THREADS)


def segment_size(store: Store) -> int:
    """Return the usual size of a store's segments, which brokers create at full length.

    If files are missing, the distances between names are multiples of the size. A file that was truncated during a copy
    is shorter. So the size divides the distances, and is not less than the longest file.
    """
    longest = max(segment.file_size for segment in store.segments)
    bases = [segment.base_offset for segment in store.segments]
    distances = [after - before for before, after in pairwise(bases)]
    common = math.gcd(*distances)
    # A single segment; or the setting was changed, and some segments are larger than others: a broker creates none that
    # is larger than the distance to the next one, so the smallest is a size that was set; see `segment_sizes`.
    if not 0 < longest <= common:
        return min([*distances, longest])
    if common % longest == 0:
        return longest
    # The smallest divisor of the distances that is not less than the longest file.
    return common // next(parts for parts in range(min(common // longest, _MAX_PARTS), 0, -1) if common % parts == 0)


def segment_sizes(store: Store) -> list[int]:
    """Return the size of each segment, which is `segment_size` unless the broker's settings have changed.

    A file that reaches the offset of the next file is a whole segment. A file that is longer than the usual size and
    ends before the next one has a larger segment size, too. The newest segment's size is at least that of its file,
    because brokers create files at full length.
    """
    common = segment_size(store)
    later_bases = [segment.base_offset for segment in store.segments[1:]]
    return [
        full_segment_size(segment, following, common)
        for segment, following in zip(store.segments, [*later_bases, None], strict=True)
    ]


def full_segment_size(segment: Segment, next_base_offset: int | None, usual_size: int) -> int:
    """Return the full size of a segment, computed from its file size and the start of the next segment.

    Args:
        next_base_offset: the base offset of the next existing segment.
        usual_size: the usual size, from `segment_size`.
    """
    if next_base_offset is None:
        return max(segment.file_size, usual_size)
    distance = next_base_offset - segment.base_offset
    if segment.file_size <= usual_size:
        return min(usual_size, distance)
    return min(-(-segment.file_size // usual_size) * usual_size, distance)


def find_stores(path: str, broker: str | None = None, *, formats: Formats) -> list[Store]:
    """Return the stores that a path, a glob or a comma-separated list of them names, ordered by name.

    If there is a folder of exactly that name, it is used, even if the name has wildcard characters. A store without a
    segment is an error if it is named, and is skipped if a glob found it.

    Args:
        path: a path, a glob, or several separated by commas.
        broker: the store's name, if the path has one store; or the names of several, from `names_text`.
        formats: formats of the stores; stores of other formats are not searched.

    Raises:
        StoreError: if there is nothing, or no store, or it cannot be read.
        UsageError: if two stores would have the same name.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        raise StoreError(f"{path!r} cannot be read, because the path is not valid UTF-8: rename the folder") from None
    names = _parse_broker_names(broker)
    found: dict[str, Store] = {}
    refused: list[UnsupportedStoreError] = []
    # First as a whole: a folder's name may contain a comma or a wildcard.
    parts = [path] if _is_folder(path) else [part.strip() for part in path.split(",") if part.strip()]
    for pattern in parts:
        for listed in _find_by_pattern(pattern, None if names else broker, formats):
            if isinstance(listed, UnsupportedStoreError):
                refused.append(listed)
                continue
            store = replace(listed, broker=names.get(listed.root, listed.broker))
            if store.broker in found:
                raise UsageError(
                    f"two stores are named {store.broker!r}: {found[store.broker].root} and {store.root}; "
                    f"use {_PLACEHOLDER} in the path where the names differ"
                )
            found[store.broker] = store
    # Nothing else to read, so the first refused store is the error.
    if not found:
        expected = format_folder_names(formats.wanted)
        raise next(
            iter(refused), StoreError(f"no store matches {path!r}: expected folders with a {expected} folder in them")
        )
    for error in refused:
        UNREAD.warning("%s: skipped", error)
    return [found[name] for name in sorted(found)]


def format_broker_names(names: Mapping[str, str]) -> str:
    """Format the names of several stores as a value of the option `broker`.

    Args:
        names: the name of each store, by the folder of its log. Others have their usual name.
    """
    return json.dumps(names, sort_keys=True)


def _parse_broker_names(broker: str | None) -> dict[str, str]:
    """Parse the option `broker` as JSON with the names of several stores; return no names if it is only one name."""
    try:
        names = json.loads(broker) if broker and broker.startswith("{") else None
    except ValueError:
        return {}
    return {str(root): str(name) for root, name in names.items()} if isinstance(names, dict) else {}


def _find_by_pattern(pattern: str, broker: str | None, formats: Formats) -> Iterator[Store | UnsupportedStoreError]:
    """Yield the stores that a path or a glob names; in a cluster, a store that is still empty is skipped."""
    filesystem, inner_path = resolve_filesystem(pattern)

    def list_store(folder_and_name: tuple[str, str | None]) -> Store | StoreError:
        root, name = folder_and_name
        try:
            return _list_store(pattern, root, broker or name or _default_broker_name(filesystem, root), formats.wanted)
        except (EmptyStoreError, UnsupportedStoreError) as error:
            return error

    places = list(_expand_pattern(filesystem, pattern, inner_path, formats))
    # In order, whichever thread is done first, so that messages and errors do not change between runs.
    for store in map_concurrently(list_store, places, _thread_count(filesystem)):
        if isinstance(store, Store):
            yield store
        elif not is_glob(pattern):
            raise store
        elif isinstance(store, UnsupportedStoreError):
            yield store
        else:
            logger.warning("%s: skipped", store)


def _thread_count(filesystem: pafs.FileSystem) -> int:
    return 1 if isinstance(filesystem, pafs.LocalFileSystem) else REMOTE_THREADS


def refresh_store(store: Store) -> Store:
    """Return the same store with the list of the segments that exist now.

    Raises:
        StoreError: if it cannot be read, or has no segment any more.
    """
    _, root = resolve_filesystem(store.root)
    return _list_store(store.root, root, store.broker, (store.format,))


def is_glob(pattern: str) -> bool:
    """Return whether a path can name several stores."""
    return bool(_WILDCARDS.search(pattern)) and not _is_folder(pattern)


def _is_folder(path: str) -> bool:
    """Return whether a local folder has exactly this name, even if the name looks like a glob."""
    return os.path.isdir(path)  # noqa: PTH112 (Path.is_dir raises for names that are too long)


def _expand_pattern(
    filesystem: pafs.FileSystem, pattern: str, inner_path: str, formats: Formats
) -> Iterator[tuple[str, str | None]]:
    """Yield the folders of logs that match a pattern, each with its broker's name if the pattern contains it."""
    if not is_glob(inner_path):
        yield _find_log_folder(filesystem, pattern, inner_path, formats), None
        return
    parts = inner_path.rstrip("/").split("/")
    wanted = [log_format.folder for log_format in formats]
    if parts[-1] in wanted:
        wanted = [parts.pop()]
    fixed = next(number for number, part in enumerate(parts) if _WILDCARDS.search(part))
    matchers = [_compile_pattern([*parts, folder]) for folder in wanted]
    # Without `**`, a match has a known depth, and deeper folders are not listed, which matters in an object store.
    depth = None if "**" in parts else len(parts) - fixed
    for folders in _walk_folders(filesystem, "/".join(parts[:fixed]) or "/", wanted, depth, formats.known):
        found = [match for folder in folders for matcher in matchers if (match := matcher.fullmatch(folder))]
        if found:
            _check_one_format(found[0].string.rsplit("/", 1)[0], [match.string for match in found], formats)
            folder = found[0].string
            yield folder, found[0].groupdict().get("broker")


def _check_one_format(folder: str, log_folders: Sequence[str], formats: Formats) -> None:
    """Raise an error if a folder has logs of two formats, because the user must choose one."""
    if len(log_folders) > 1:
        names = " and ".join(f"'{path.rsplit('/', 1)[1]}'" for path in log_folders)
        choices = ", ".join(f"--layout {log_format.folder}" for log_format in formats.known)
        raise StoreError(
            f"{folder} holds the logs of two formats, {names}: choose one ({choices}; the source's option layout), or "
            "name the log's folder itself"
        )


def _compile_pattern(path_parts: list[str]) -> re.Pattern[str]:
    pieces = []
    for part in path_parts:
        if part == "**":
            pieces.append("(?:[^/]+/)*")
        elif part == _PLACEHOLDER:
            pieces.append("(?P<broker>[^/]+)/")
        else:
            # fnmatch's pattern for one component, restricted so that it does not match a slash
            pieces.append(translate(part).removeprefix("(?s:").removesuffix(")\\Z").replace(".*", "[^/]*") + "/")
    return re.compile("".join(pieces).removesuffix("/"))


def _walk_folders(
    filesystem: pafs.FileSystem,
    top_folder: str,
    log_folder_names: Sequence[str],
    depth: int | None,
    known_formats: Sequence[Format],
) -> Iterator[list[str]]:
    """Yield the folders of logs, grouped by the folder that contains them; skip folders that cannot have any.

    Args:
        filesystem: the filesystem of the folders.
        top_folder: the folder to begin with.
        log_folder_names: names of the folders of logs.
        depth: number of levels below the first folder; None for all.
        known_formats: all formats.
    """
    level, done = [top_folder], 0
    while level:
        found = map_concurrently(
            partial(_find_logs_in, filesystem, log_folder_names, known_formats), level, _thread_count(filesystem)
        )
        yield from (logs for logs, _ in found)
        # Level by level, so that the folders of one level are listed at the same time.
        level = [] if done == depth else [path for _, inner in found for path in inner]
        done += 1


def _find_logs_in(
    filesystem: pafs.FileSystem, log_folder_names: Sequence[str], known_formats: Sequence[Format], folder: str
) -> tuple[list[str], list[str]]:
    """Return the folders of logs directly in a folder, and its subfolders that may contain others."""
    try:
        entries = filesystem.get_file_info(pafs.FileSelector(folder))
    except FileNotFoundError:
        return [], []
    except PermissionError as error:
        raise StoreError(f"{folder} cannot be read: {error.strerror or error}") from None
    inner = sorted(
        (entry.path, entry.base_name)
        for entry in _keep_utf8_names(folder, entries)
        if entry.type == pafs.FileType.Directory
    )
    logs = [path for path, name in inner if name in log_folder_names]
    if not logs:  # a log may be in an appended folder only; its own folder then need not exist
        beside = [log_format for log_format in known_formats if log_format.folder in log_folder_names]
        appended = find_appended_logs((name for _, name in inner), beside)
        logs = [f"{folder.rstrip('/')}/{name}" for name in appended]
    if not logs and any(name == shipped_manifest.FOLDER for _, name in inner):
        manifest = read_shipped_manifest(filesystem, folder.rstrip("/"))
        # An object store has no empty folders: until the first segment is complete, only the manifest tells the log's
        # name.
        logs = [f"{folder.rstrip('/')}/{manifest.folder}"] if manifest and manifest.folder in log_folder_names else []
    never_hold_a_store = frozenset({shipped_manifest.FOLDER}).union(
        *(log_format.folders.own for log_format in known_formats)
    )
    return logs, [path for path, name in inner if name not in never_hold_a_store]


def _keep_utf8_names(folder: str, entries: Iterable[pafs.FileInfo]) -> Iterator[pafs.FileInfo]:
    """Return the entries with a name in UTF-8, because options and tables cannot contain other names."""
    for entry in entries:
        try:
            entry.path  # noqa: B018 (it is decoded when it is asked for)
        except UnicodeDecodeError as error:
            if entry.type == pafs.FileType.Directory:
                logger.warning("%s: the name of a folder is not UTF-8: skipped %r", folder, error.object)
            continue
        yield entry


def _find_log_folder(filesystem: pafs.FileSystem, given_path: str, path: str, formats: Formats) -> str:
    path = path.rstrip("/")
    wanted, known = ([log_format.folder for log_format in some] for some in (formats.wanted, formats.known))
    try:
        # One request for all, because each takes a round trip in an object store.
        info, *inside = filesystem.get_file_info([path, *(f"{path}/{folder}" for folder in known)])
    except PermissionError:
        raise StoreError(f"{given_path} cannot be read by this user: {_PERMISSION_HINT}") from None
    there = [str(folder.path) for folder in inside if folder.type == pafs.FileType.Directory]
    found = [folder for folder in there if folder.rsplit("/", 1)[1] in wanted]
    if found:
        _check_one_format(given_path, found, formats)
        return found[0]
    if not there and (shipped_log := _find_shipped_log(filesystem, path, wanted)) is not None:
        return shipped_log
    names = format_folder_names(formats.wanted)
    if info.type == pafs.FileType.NotFound:
        raise StoreError(f"{given_path} does not exist: expected a broker's store folder, the one that holds {names}")
    if info.type == pafs.FileType.File:
        raise StoreError(f"{given_path} is a file: expected the store folder, the one that holds {names}")
    if info.base_name in wanted:
        return path
    for other in [*there, path]:
        if (layout := other.rsplit("/", 1)[-1]) in known:
            raise StoreError(
                f"{given_path} holds {layout!r}, but {names} was asked for: use --layout {layout}, or leave out "
                "--layout "
                f"(in Spark: format({layout!r}), or the option layout)"
            )
    if info.type == pafs.FileType.Directory and (appended := _list_appended_logs(filesystem, path, formats.wanted)):
        return f"{path}/{next(iter(appended))}"
    raise StoreError(f"{given_path} is not a store, because it has no folder {names}: name a broker's store folder")


def _list_appended_logs(filesystem: pafs.FileSystem, folder: str, formats: Sequence[Format]) -> dict[str, list[str]]:
    """Return the folders in a store in which its log may go on, by the folder of the log."""
    entries = _keep_utf8_names(folder, filesystem.get_file_info(pafs.FileSelector(folder, allow_not_found=True)))
    return find_appended_logs(
        sorted(entry.base_name for entry in entries if entry.type == pafs.FileType.Directory), formats
    )


def _find_shipped_log(filesystem: pafs.FileSystem, path: str, folder_names: Sequence[str]) -> str | None:
    """Return the folder of a shipped log, even if it has no object yet because no segment is complete."""
    parent, _, name = path.rpartition("/")
    for store in (path, parent) if name in folder_names else (path,):
        manifest = read_shipped_manifest(filesystem, store)
        if manifest is not None and manifest.folder in folder_names:
            return f"{store}/{manifest.folder}"
    return None


def _default_broker_name(filesystem: pafs.FileSystem, root: str) -> str:
    manifest = read_shipped_manifest(filesystem, root.rsplit("/", 1)[0])
    if manifest is not None and manifest.broker:
        return manifest.broker
    parts = root.split("/")[:-1]
    if len(parts) > 1 and parts[-1] == _GENERIC_STORE_NAME and parts[-2]:
        return parts[-2]
    return parts[-1] or _GENERIC_STORE_NAME


def _list_store(given_path: str, root: str, broker: str, formats: Sequence[Format]) -> Store:
    filesystem, _ = resolve_filesystem(given_path)
    prefix = scheme_prefix(given_path)
    try:
        entries = filesystem.get_file_info(pafs.FileSelector(root, allow_not_found=True))
    except PermissionError:
        raise StoreError(f"{root} cannot be read by this user: {_PERMISSION_HINT}") from None
    if not prefix:
        _check_segment_files(root)
        check_no_versions(filesystem, f"{root.rsplit('/', 1)[0]}/{shipped_manifest.LOG_MANIFEST}")
    sizes = {
        entry.base_name: entry.size for entry in _keep_utf8_names(root, entries) if entry.type == pafs.FileType.File
    }
    # An object that the manifest does not name is no part of the copy: an agent may be writing it.
    if not isinstance(filesystem, pafs.LocalFileSystem):  # in a folder, also an unfinished segment is a file
        manifest = read_shipped_manifest(filesystem, root.rsplit("/", 1)[0])
        sizes = sizes if manifest is None else shipped_file_sizes(manifest, manifest.folder, sizes)
    segments = []
    for name, size in sizes.items():
        base_offset = parse_segment_name(name)
        if base_offset is not None:
            segments.append(Segment(f"{prefix}{root}/{name}", base_offset, size))
    log_format = next(each for each in formats if each.folder == root.rsplit("/", 1)[1])
    if not prefix:
        segments = _add_further_folders(segments, Path(root).parent, log_format, broker)
    if not segments:
        folder = root.rsplit("/", 1)[0]
        if prefix and (appended := _list_appended_logs(filesystem, folder, formats)):
            names = ", ".join(name for names in appended.values() for name in names)
            raise UnsupportedStoreError(
                f"{prefix}{folder}: the log in {names} is read on a local disk only: 'commitlake ship' copies it"
            )
        raise EmptyStoreError(f"{prefix}{root} contains no segment: the broker has not stored a message yet")
    in_order = tuple(sorted(segments, key=lambda segment: segment.base_offset))
    for segment, following in pairwise(in_order):
        if segment.base_offset == following.base_offset:
            raise StoreError(
                f"{segment.path} and {following.path} both begin at physical offset {segment.base_offset}, but one of "
                "their names has non-ASCII digits: move that file out of the folder, because brokers write ASCII digits"
            )
    return Store(broker, prefix + root, in_order, log_format)


def _add_further_folders(segments: list[Segment], root: Path, log_format: Format, broker: str) -> list[Segment]:
    """Return the segments of a log with those in its further folders; see `log_folders`."""
    try:
        folders = find_log_folders(root, log_format, broker).all
        if len(folders) == 1:
            return segments
        files = find_segment_files(folders)
        return [Segment(str(path), base, path.lstat().st_size) for base, path in files.items()]
    except OSError as error:
        raise StoreError(f"{error}: a folder of the log of {root} cannot be read") from None


def _check_segment_files(root: str) -> None:
    """Raise an error for a link or a device with a segment's name, because ignoring it could lose data."""
    try:
        files_in(Path(root), is_segment_name)
    except UnsafeFileError as error:
        hint = "only the store and its log's folder may be links; copy the file to its place"
        raise StoreError(f"{error}; {hint}") from None
