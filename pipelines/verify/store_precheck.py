"""Checks of a store before its log is read: segment files, headers of index files, small files."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow.fs as pafs

from commitlake.connectors.formats.rocketmq.topic_kinds import may_have_light_queues, read_configured_kinds
from commitlake.connectors.log_format.checkpoint_and_config import SmallFiles
from commitlake.connectors.log_format.files import StoreFiles
from commitlake.connectors.log_format.format import Format
from commitlake.connectors.reading.files.shipped_files import ShippedStoreFiles
from commitlake.connectors.reading.files.shipped_stores import read_shipped_manifest, resolve_filesystem
from commitlake.connectors.reading.files.store_files import open_small_files, open_store_files, store_folder_of_log
from commitlake.connectors.reading.newer_data import find_other_logs
from commitlake.connectors.reading.single_records import LogRecords
from commitlake.connectors.reading.snapshots import LogTailKind, StoreRange, log_range, make_read_log
from commitlake.connectors.reading.stores import Store, refresh_store, segment_size
from commitlake.connectors.storage.uris import is_uri
from commitlake.pipelines.verify import index_files
from commitlake.pipelines.verify.findings import DEFAULT_LIMIT, Finding, Findings
from commitlake.pipelines.verify.index_files import IndexPart, open_index_part, read_entries_between, read_entry
from commitlake.pipelines.verify.observed_delays import complete_delay_levels, nondefault_levels, observe_delays
from commitlake.pipelines.verify.queue_ends import check_queue_kinds
from commitlake.pipelines.verify.store_view import (
    ABORT,
    StoreView,
    find_dispatched_end,
    is_locked,
    list_queues,
    queue_file_size,
)
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.broker_conf import DEFAULT_DELAY_LEVELS_MS, DELAY_UNIT_MS
from commitlake.schemas.layouts.segment_names import parse_segment_name
from commitlake.schemas.shipped_manifest import FILES_MANIFEST, LOG_MANIFEST, Manifest

DEFAULT_PARTITION_BYTES = 256 << 20
_CONFIRMING_ENTRIES = 8
"""Number of entries by which a header's time is judged, so that no damaged entry decides."""


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """Options of a verification.

    Attributes:
        delay_levels_ms: the brokers' messageDelayLevel; None to use what each store's schedule queues show.
        delay_levels_by_broker: the same for single stores, by name; takes precedence over `delay_levels_ms`.
        partition_bytes: bytes of the log that one task reads.
        limit: how many findings of a class are kept for each store; all are counted.
    """

    delay_levels_ms: tuple[int, ...] | None = None
    partition_bytes: int = DEFAULT_PARTITION_BYTES
    limit: int = DEFAULT_LIMIT
    delay_levels_by_broker: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def delay_levels_of(self, broker: str) -> tuple[int, ...] | None:
        """Return the messageDelayLevel that the user gave for a store; None if there is none."""
        return self.delay_levels_by_broker.get(broker, self.delay_levels_ms)


@dataclass(frozen=True)
class AdmittedStore:
    """Store whose first checks have allowed its log to be read.

    Attributes:
        store: the store.
        view: what the tasks need to know about it.
        small: its small files.
        findings: findings so far; later checks add theirs.
        queues: topics and queue ids that have a folder.
    """

    store: Store
    view: StoreView
    small: SmallFiles
    findings: Findings
    queues: list[tuple[str, int]]


def check_is_readable(store: Store) -> None:
    """Raise an error if a store cannot be verified, such as an unshipped one in an object store.

    Raises:
        StoreError: if it is in an object store and no copy by `commitlake ship`, or its manifest is damaged.
    """
    open_store_files(store_folder_of_log(store.root))


def admit_store(store: Store, options: VerifyOptions) -> AdmittedStore:
    """Run the checks of a store that do not read its log; return what later checks need to know.

    Raises:
        StoreError: if it cannot be read, or is in an object store and no copy by `commitlake ship`.
        UnsafeFileError: for a link, or anything else that is not a regular file, in place of one of its files.
    """
    root = store_folder_of_log(store.root)
    findings = Findings(options.limit)
    with open_small_files(store.root) as folder:
        is_remote = is_uri(root)
        is_live, was_aborted = not is_remote and is_locked(folder), os.path.lexists(folder / ABORT)
        # A copy has `abort` while the broker runs.
        small = store.format.small_files.read_small_files(
            folder, findings, is_live=is_live or (is_remote and was_aborted)
        )
        files = open_store_files(root)
        if is_remote:  # see `store_view` for the order
            was_aborted = was_aborted or bool(files.files_in("", ABORT.__eq__))
            store = refresh_store(store)
        log = log_range(store, is_live=is_live)
        manifest = _read_manifest(files, root)
        view = StoreView(
            broker=store.broker,
            files=files,
            root=root,
            segments=store.segments,
            start=log.start,
            end=log.end,
            tail=log.tail,
            tail_bytes=log.tail_bytes,
            is_live=is_live,
            was_aborted=was_aborted,
            is_copy=manifest is not None,
            has_other_logs=_find_other_logs(store, log, findings),
            is_behind=is_remote and manifest is not None and _are_queues_behind(root, manifest),
            queue_file_size=0,
            batch_file_size=0,
            dispatched_end=log.end,
            index=(),
            kinds=store.format.queues.topic_kinds(folder),
            lacks_queues=_unreadable_queues(store.format, folder, manifest),
            delay_levels_ms=options.delay_levels_of(store.broker) or DEFAULT_DELAY_LEVELS_MS,
            limit=options.limit,
            topics=store.format.small_files.known_topics(folder),
            format=store.format,
            dialect=store.format.dialects.dialect_of(store.segments),
            may_have_light_queues=may_have_light_queues(folder),
        )
        view, queues, batches = _add_queues_to_view(view, read_configured_kinds(folder), findings)
    if store.format.brokers.has_delay_levels and options.delay_levels_of(store.broker) is None:
        view = _set_observed_delays(view, queues, findings)
    _check_segments(store, view, small, findings)
    index = tuple(_find_index_parts(store, view, manifest, findings)) if view.has_key_index else ()
    return AdmittedStore(store, replace(view, index=index), small, findings, [*queues, *batches])


def _find_other_logs(store: Store, log: StoreRange, findings: Findings) -> bool:
    """Report other folders with segments of the store's log, which are not read; return whether there are any."""
    read = make_read_log(store)
    others = find_other_logs(read, None, log.end) if read is not None else []
    for other in others:
        expected = f"the whole log in {store.root}"
        findings.add(
            Finding(
                "log_elsewhere", str(other.folder), physical_offset=other.start, found=str(other), expected=expected
            )
        )
    return bool(others)


def _unreadable_queues(log_format: Format, folder: Path, manifest: Manifest | None) -> str:
    """Return why a store's queues cannot be read, such as being in RocksDB; empty if they can be read."""
    if log_format.queues.has_queues_in_rocksdb(folder):
        return "queues in RocksDB"
    folders = {name.partition("/")[0] for name in manifest.files} if manifest is not None else set()
    if manifest is not None and folders.isdisjoint(log_format.queues.folders):
        return "no queue: 'commitlake ship' does not copy queues in RocksDB"
    return ""


def _read_manifest(files: StoreFiles, root: str) -> Manifest | None:
    """Return the manifest of a shipped copy's queues and indexes; None if the store is no such copy."""
    if isinstance(files, ShippedStoreFiles):
        return files.manifest
    return read_shipped_manifest(pafs.LocalFileSystem(), root, FILES_MANIFEST)


def _are_queues_behind(root: str, manifest: Manifest) -> bool:
    """Return whether the log of a shipped copy may be newer than its queues."""
    log = read_shipped_manifest(*resolve_filesystem(root), LOG_MANIFEST)
    return log is None or log.written_at_ms > manifest.written_at_ms


def _add_queues_to_view(
    view: StoreView, has_batches_by_topic: Mapping[str, bool], findings: Findings
) -> tuple[StoreView, list[tuple[str, int]], list[tuple[str, int]]]:
    """Return the view with the sizes and ends of queue files, and lists of all queues and batch queues."""
    files, layout = view.files, view.queue_layout
    queues = list_queues(files, layout)
    file_size = queue_file_size(files, queues, layout)
    ends = [find_dispatched_end(files, queues, file_size, view.end, layout)] if view.may_indexes_lag else []
    batches, batch_file_size = [], 0
    if (batch_layout := view.format.queues.batch_layout) is not None:
        batches = list_queues(files, batch_layout)
        batch_file_size = queue_file_size(files, batches, batch_layout)
        check_queue_kinds(files, has_batches_by_topic, queues, layout, findings, are_batches=False)
        check_queue_kinds(files, has_batches_by_topic, batches, batch_layout, findings, are_batches=True)
        if view.may_indexes_lag:
            ends.append(find_dispatched_end(files, batches, batch_file_size, view.end, batch_layout))
    dispatched = max(ends, default=view.end)
    view = replace(
        view,
        is_behind=view.is_behind and dispatched < view.end,  # otherwise the queues have the newest record
        queue_file_size=file_size,
        batch_file_size=batch_file_size,
        dispatched_end=dispatched,
    )
    return view, queues, batches


def _set_observed_delays(view: StoreView, queues: Sequence[tuple[str, int]], findings: Findings) -> StoreView:
    """Return the view with the delay levels that the delay queues show, after reporting those not the default."""
    records = LogRecords(view.segments, view.format)
    topic = view.dialect.schedule_topic
    observed = observe_delays(view.files, queues, topic, view.queue_file_size, view.queue_layout, records)
    for level in nondefault_levels(observed):
        default = DEFAULT_DELAY_LEVELS_MS[level - 1 : level]
        findings.add(
            Finding(
                "delay_level_not_default",
                queue=f"{topic}/{level - 1}",
                found=f"level {level} waits {observed[level] // DELAY_UNIT_MS} s",
                expected=f"{default[0] // DELAY_UNIT_MS} s, the default" if default else "18 levels, the default",
            )
        )
    return replace(view, delay_levels_ms=complete_delay_levels(observed))


def _check_segments(store: Store, view: StoreView, small_files: SmallFiles, findings: Findings) -> None:
    size = segment_size(store)
    for segment in store.segments:
        if segment.file_size != size:
            name = f"{view.log_folder_name}/{segment.path.rsplit('/', 1)[-1]}"
            findings.add(
                Finding("log_file_size", name, physical_offset=segment.base_offset, found=f"{segment.file_size} bytes",
                        expected=f"{size} bytes")
            )  # fmt: skip
    for name in view.files.files_in(view.log_folder_name):
        if parse_segment_name(name) is None:
            findings.add(
                Finding("log_stray_file", f"{view.log_folder_name}/{name}", found=name, expected="20 digits as a name")
            )
    if view.tail is LogTailKind.TORN and not view.is_live:
        # Bytes that a broker cut off after a crash stay in the file until it writes its next record.
        is_known = small_files.log_end is not None and small_files.log_end <= view.end
        code = "log_torn_tail" if view.was_aborted or is_known else "log_torn_clean"
        findings.add(
            Finding(code, view.log_folder_name, physical_offset=view.end,
            found=f"{view.tail_bytes} bytes that are no record",
                    expected="zeros, or a filler up to the segment's end")
        )  # fmt: skip


def _find_index_parts(
    store: Store, view: StoreView, manifest: Manifest | None, findings: Findings
) -> Iterator[IndexPart]:
    """Yield the readable IndexFiles that cover the existing log, in log order.

    Those that the manifest of a copy names are complete, and none of them is the broker's newest one.
    """
    complete = frozenset(manifest.files) if manifest else frozenset()
    parts = []
    names = [f"{index_files.FOLDER}/{name}" for name in view.files.files_in(index_files.FOLDER, str.isdecimal)]
    for name in names:
        try:
            part = open_index_part(view.files, name)
        except LayoutError as error:
            findings.add(Finding("index_file_size", name, found=error.found, expected=error.expected))
            continue
        if part is not None:
            parts.append(_compare_index_header(store, part, view, findings))
    parts = sorted((part for part in parts if part.last_offset >= view.start), key=lambda part: part.first_offset)
    kept: list[IndexPart] = []
    for part in parts:
        before = kept[-1] if kept else None
        if before is not None and part.first_offset < before.last_offset:
            findings.add(
                Finding("index_overlap", part.name, 16, part.first_offset, found=f"entries from {part.first_offset} on",
                        expected=f"none before {before.last_offset}, where {before.name} ends")
            )  # fmt: skip
            if part.last_offset <= before.last_offset:
                continue  # reported as a whole: comparing it would give one more finding for each entry
        kept.append(part)
    if names and names[-1] in complete:
        _report_missing_index_files(names[-1], complete, findings)
    for part in kept:
        if part.last_offset >= view.end and not view.is_live:
            _report_entries_after_log_end(part, view, findings)
        yield replace(part, is_newest=part is kept[-1] and part.name not in complete)


def _report_missing_index_files(last_name: str, complete_names: Collection[str], findings: Findings) -> None:
    """Report IndexFiles after the last existing one that a shipped copy's manifest names."""
    for name in sorted(complete_names):
        if name > last_name and name.startswith(f"{index_files.FOLDER}/"):
            found, expected = "no file", "one, as the copy's manifest names it"
            findings.add(Finding("index_missing_entry", name, found=found, expected=expected))


def _report_entries_after_log_end(part: IndexPart, view: StoreView, findings: Findings) -> None:
    with closing(view.files.open(part.name)) as file:
        first, entries = read_entries_between(file, part, view.end, 1 << 62)
    expected = f"an offset before the log's end, {view.end}"
    code = view.finding_code_after_log_end("index_beyond_log")
    findings.add_many(
        code,
        len(entries),
        (
            Finding(code, part.name, part.geometry.entry_position(number), int(entry["physical_offset"]),
                    number=number, found=f"offset {entry['physical_offset']}", expected=expected)
            for number, entry in enumerate(entries[: view.limit], first)
        ),
    )  # fmt: skip


def _compare_index_header(store: Store, part: IndexPart, view: StoreView, findings: Findings) -> IndexPart:
    """Compare an IndexFile's header with the log; return the file with the begin and end that the log confirms."""
    header = part.header
    first_offset, last_offset = part.first_offset, part.last_offset
    begin = part.begin_timestamp
    first = _read_record_time(store, first_offset)
    # The entry may be damaged, and the header names the same record.
    if first is None:
        first_offset = header.begin_physical_offset
        first = _read_record_time(store, first_offset)
    if first is not None:
        begin = first
        _compare_header_span(part, "begin", (header.begin_timestamp, header.begin_physical_offset), (first,
        first_offset),
                      findings)  # fmt: skip
    elif not _is_begin_confirmed(store, part, view):
        begin = -1
        expected = "a time from which the times of its entries are measured"
        findings.add(
            Finding("index_header_span", part.name, 0, found=f"begin {header.begin_timestamp} ms", expected=expected)
        )
    last = _read_record_time(store, last_offset)
    if last is None or last_offset < first_offset:
        last_offset = header.end_physical_offset
        last = _read_record_time(store, last_offset)
    # While the broker adds entries, the header may be older than they are.
    if last is not None and not (view.is_live and header.index_count - 1 != part.last):
        _compare_header_span(
            part, "end", (header.end_timestamp, header.end_physical_offset), (last, last_offset), findings
        )
    return replace(part, first_offset=first_offset, last_offset=max(first_offset, last_offset),
                   begin_timestamp=begin)  # fmt: skip


def _is_begin_confirmed(store: Store, part: IndexPart, view: StoreView) -> bool:
    """Return whether an IndexFile's begin time fits its entries, for use if the log lacks its first record.

    Otherwise each entry would be reported for a damaged header. A file without any record in the log is confirmed.
    """
    # Entry 1 is left out, because its time is measured from the file before.
    numbers = range(2, part.last + 1)[:: max(1, part.last // _CONFIRMING_ENTRIES)]
    has_record = False
    with closing(view.files.open(part.name)) as file:
        for number in reversed(numbers):  # the newest first, whose records the log has longest
            entry = read_entry(file, part, number)
            time = _read_record_time(store, int(entry["physical_offset"]))
            if time is not None:
                has_record = True
                if max(0, (time - part.begin_timestamp) // 1000) == entry["time_diff"]:
                    return True
    return not has_record


def _compare_header_span(
    part: IndexPart, side: str, claimed_span: tuple[int, int], actual_span: tuple[int, int], findings: Findings
) -> None:
    if claimed_span != actual_span:
        findings.add(
            Finding(
                "index_header_span",
                part.name,
                0,
                actual_span[1],
                found=f"{side} {claimed_span[0]} ms, offset {claimed_span[1]}",
                expected=f"{actual_span[0]} ms, offset {actual_span[1]}",
            )
        )


def _read_record_time(store: Store, offset: int) -> int | None:
    """Return the store time of the valid record at a physical offset; None if there is none."""
    message = LogRecords(store.segments, store.format).get_record(offset)
    return None if message is None else int(message.store_timestamp)
