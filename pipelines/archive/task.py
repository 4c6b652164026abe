"""Tasks of an archive run, which write packs and data files from ranges of logs. No row passes through the JVM.

If a task is repeated after a failure, or run twice because it is slow, each attempt writes its own packs and data
files. Only those of the attempt whose manifest arrives are committed.

Tasks may run on machines where the same path is a different folder. A commit would then name files that nobody can
read, so the driver checks before the commit that it sees the files of all tasks.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import accumulate, chain
from pathlib import Path

import pyarrow as pa

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.erasures import NOTHING_ERASED, ErasedMessages
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.manifest import ManifestRow, TaskProfile
from commitlake.connectors.lake.packs.errors import PackError
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.lake.store_progress import QueueReport
from commitlake.connectors.reading.batches import DecoderCache
from commitlake.connectors.reading.damage import CORRUPT_RECORD
from commitlake.connectors.reading.options import Mode
from commitlake.connectors.reading.partition_sizes import (
    MIN_PART_BYTES,
    choose_part_size,
    compute_read_costs,
    group_by_size,
)
from commitlake.connectors.reading.read_request import Request
from commitlake.connectors.reading.snapshots import divide_segment
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.runtime.runner import Runner
from commitlake.connectors.storage.uris import is_uri
from commitlake.pipelines.archive.body_packs import BodyPacks
from commitlake.pipelines.archive.profile_files import max_inline_bytes, write_staged_profile
from commitlake.pipelines.archive.quarantine_rows import RefusalWriter
from commitlake.pipelines.archive.row_buffer import ErasureOnArrival, RowBuffer, join_rows
from commitlake.pipelines.archive.task_input import Part, read_part
from commitlake.pipelines.masking.archive_masks import ArchiveMasks
from commitlake.pipelines.masking.copies_of_erased import NO_COPIES, LaterCopies
from commitlake.pipelines.message_keys.key_files import KeyWriter
from commitlake.pipelines.topic_minutes.minute_counts import MinutesFiles
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES
from commitlake.schemas.tables.messages import BODY, SOURCE

_COLUMNS = SOURCE.drop_columns(BODY.name)
_MAX_BATCHES = 8  # each keeps all of the kernel's buffers, even if it fills little of them
_MAX_CLOSING = 16  # open files of a task; a broken clock can give rows of many dates
_MIN_KEYED_BYTES = 64 << 20  # of the log, for each of several files of keys, because a look-up reads a part of each
_MAX_CORES_WITH_SMALL_ENDS = 16  # to divide a part, the driver reads some MiB of it


@dataclass(frozen=True)
class ArchiveTasks:
    """Tasks of one archive run, each of which archives some parts of the logs.

    Attributes:
        parts: parts of logs; a data file may have the rows of several.
        lake: the lake.
        run_id: part of the files' names, so that files of two runs differ.
        parser_version: written to rows on ranges that could not be read.
        profiled: True to compute a profile of the rows.
        erased: messages of the ranges that were erased before, when an earlier version of the lake had them.
        masks: rules to mask rows and bodies; None for none.
        pack_bytes: size of the log whose bodies go into one pack; None for one pack for each part.
        keyed: True to write the keys of the rows, too, if the tasks are large.
        copies: recognises later copies of erased messages.
    """

    parts: Sequence[Part]
    lake: Lake
    run_id: str
    parser_version: str
    profiled: bool = True
    erased: ErasedMessages = NOTHING_ERASED
    masks: ArchiveMasks | None = None
    pack_bytes: int | None = None
    keyed: bool = False
    copies: LaterCopies = NO_COPIES

    def run_all(self, runner: Runner, advance: Callable[[int], None] = lambda _: None) -> Iterator[ManifestRow]:
        """Run the tasks for all parts of the log; one task takes several small parts.

        Args:
            advance: called with the size of log that was done.

        Yields:
            The manifest: a row for each file, and one for each task.
        """
        if not self.parts:
            return
        groups = self._group_parts(runner.cores)
        numbers = accumulate(map(len, groups), initial=0)
        # A task receives its own parts only.
        settings = replace(self, parts=(), keyed=self.keyed and _should_write_keys(groups))
        tasks = list(zip(numbers, groups, strict=False))
        for number, rows in runner.run(partial(_run_group, settings, max_inline_bytes(len(groups))), tasks):
            yield from rows
            advance(sum(part.size for part in groups[number]))

    def run_task(
        self, number: int, parts: Sequence[Part], inline_limit_bytes: int = max_inline_bytes(1)
    ) -> Iterator[ManifestRow]:
        """Archive the given parts in one task; yield a manifest row for each file, and one with all other counts.

        Args:
            number: number of the first part, for the names of files.
            parts: parts of the task.
            inline_limit_bytes: largest size of a profile in the manifest; a larger one is staged.
        """
        # Two attempts of one task at the same time must not write to the same files.
        name = f"part-{number:05d}-{self.run_id}-{secrets.token_hex(4)}"
        minutes = MinutesFiles(self.lake, name, self.run_id)
        refusals = RefusalWriter(self.lake, name, self.run_id, self.parser_version, hides_bytes=self.masks is not None)
        erases = bool(self.erased or self.copies)
        masking = RowMasking(self.masks, needs_rows=bool(self.copies))
        # A kept decoder also has strings of earlier packs, which later data files would store: never erased ones.
        last_decoder = None if erases else DecoderCache()
        sizes: dict[str, int] = {}
        with ThreadPoolExecutor(1) as background:
            closing = _BackgroundCloser(background)
            again = ErasureOnArrival(self.lake, name, self.erased, self.copies, self.parser_version) if erases else None
            keys = KeyWriter(self.lake, name, self.erased) if self.keyed else None
            waiting = RowBuffer(
                self.lake, name, minutes, closing.close_later, profiled=self.profiled, erased=again, keys=keys
            )
            for stretch in self._group_parts_by_pack(parts):
                with ExitStack() as open_packs:
                    store = open_pack_store(self.lake.packs)
                    packs = open_packs.enter_context(BodyPacks(stretch, store, self.erased, self.copies))
                    rows, refused = _read_parts(stretch, packs, refusals, masking, last_decoder)
                    yield from refused
                    written = packs.finish()
                    # The pack appears when it is closed, which another thread does while this one reads the next range.
                    closing.close_later(open_packs.pop_all().close)
                sizes |= {pack.pack: pack.refs.end_position for pack in written}
                if rows:
                    yield from waiting.add_rows(rows, written)
                    del rows
            yield from waiting.write_files()
            yield from (ManifestRow.from_data_file(file, "topic_minutes") for file in minutes.finish_files())
            yield from (
                ManifestRow.from_data_file(file, "message_keys") for file in (keys.finish_files() if keys else ())
            )
            yield from (ManifestRow.from_data_file(file, "erasures") for file in (again.finish() if again else ()))
            yield from refusals.finish()
            profile: TaskProfile | None = None
            if waiting.profile is not None:
                profile = write_staged_profile(waiting.profile, self.lake, self.run_id, name, inline_limit_bytes)
            # The last row of the manifest is sent only when all files exist, because the commit names them.
            closing.finish()
        yield ManifestRow.from_task_results(sizes, refusals.counts, refusals.first, profile, masking.left_out)

    def _group_parts(self, cores: int) -> list[Sequence[Part]]:
        """Group parts of the log into tasks, of which the last ones are small so that all cores work until the end."""
        costs = compute_read_costs(self.parts)
        groups = group_by_size(self.parts, costs, choose_part_size(sum(costs), cores, min_size=1))
        if cores > _MAX_CORES_WITH_SMALL_ENDS:
            return [*groups]
        # The last groups are divided, because they decide how long the cores wait for each other.
        return [*groups[:-cores], *chain.from_iterable(map(self._split_single_range, groups[-cores:]))]

    def _split_single_range(self, group: Sequence[Part]) -> Iterator[Sequence[Part]]:
        """Divide a group that is a single range of a local log into small groups that end where packs end."""
        part = group[0]
        if len(group) > 1 or not isinstance(part, Split) or self.pack_bytes is None or is_uri(part.path):
            yield group
            return
        size = max(1, MIN_PART_BYTES // self.pack_bytes) * self.pack_bytes
        for piece in divide_segment(part, size, DEFAULT_MAX_RECORD_BYTES):
            yield [piece]

    def _group_parts_by_pack(self, parts: Sequence[Part]) -> Iterator[list[Part]]:
        """Divide large parts and join small neighbouring ones, so that the bodies of each list fill one pack."""
        joined: list[Part] = []
        for piece in self._split_large_parts(parts):
            if joined and not self._part_fits_into_pack(joined, piece):
                yield joined
                joined = []
            joined.append(piece)
        if joined:
            yield joined

    def _split_large_parts(self, parts: Sequence[Part]) -> Iterator[Part]:
        for part in parts:
            if isinstance(part, Split) and self.pack_bytes is not None:
                yield from divide_segment(part, self.pack_bytes, DEFAULT_MAX_RECORD_BYTES)
            else:
                yield part

    def _part_fits_into_pack(self, pack_parts: Sequence[Part], part: Part) -> bool:
        """Return whether a part directly follows `pack_parts` in the log, and fits into the same pack."""
        last = pack_parts[-1]
        return (
            isinstance(part, Split)
            and isinstance(last, Split)
            and self.pack_bytes is not None
            and (last.broker, last.end) == (part.broker, part.start)
            and part.end - pack_parts[0].start <= self.pack_bytes
        )


class _BackgroundCloser:
    """Closes a task's files in another thread, so that the task continues while they are written to disk."""

    def __init__(self, thread: Executor) -> None:
        self._thread = thread
        self._pending: deque[Future[None]] = deque()

    def close_later(self, close_file: Callable[[], None]) -> None:
        """Close a file in another thread, but wait first if too many files are still open."""
        if len(self._pending) >= _MAX_CLOSING:
            self._pending.popleft().result()
        self._pending.append(self._thread.submit(close_file))

    def finish(self) -> None:
        """Wait until all files are closed."""
        for one in self._pending:
            one.result()


def _should_write_keys(groups: Sequence[Sequence[Part]]) -> bool:
    """Return whether each task reads enough of the log to write its own file of message keys."""
    return len(groups) == 1 or sum(part.size for group in groups for part in group) >= _MIN_KEYED_BYTES * len(groups)


class RowMasking:
    """Masks the rows and bodies of a task's batches.

    Args:
        masks: rules; None for none.
        needs_rows: True if bodies are to be added to packs with their masked rows.

    Attributes:
        left_out: number of bodies that could not be masked and were left out.
    """

    def __init__(self, masks: ArchiveMasks | None, *, needs_rows: bool = False) -> None:
        self._masks = masks
        self._needs_rows = needs_rows
        self.left_out = 0

    @property
    def reads_bodies(self) -> bool:
        """True if bodies must be read as a column, because masks change them or packs need masked keys."""
        return self._masks is not None and (self._masks.changes_bodies or self._needs_rows)

    def mask(self, batch: pa.RecordBatch, packs: BodyPacks) -> pa.RecordBatch:
        """Mask the rows of a batch; move a column of bodies to the packs, and return the other columns."""
        if self._masks is None:
            return batch
        batch, left_out = self._masks.mask_rows(batch)
        self.left_out += left_out
        if not self.reads_bodies:
            return batch
        packs.add_rows(batch)
        return batch.drop_columns([BODY.name])


def _read_parts(
    parts: Sequence[Part],
    packs: BodyPacks,
    refusals: RefusalWriter,
    masking: RowMasking,
    last_decoder: DecoderCache | None,
) -> tuple[list[pa.Table], list[ManifestRow]]:
    """Read the messages of parts of a log, add their bodies to packs, and return the other columns and manifest rows.

    The manifest rows are for files that refusals have filled, and for queues that were pulled.
    """
    rows: list[pa.Table] = []
    loose: list[pa.Table] = []
    manifest: list[ManifestRow] = []
    reports: list[QueueReport] = []
    inspect = _ignore_profile_window if masking.reads_bodies else packs.add_batch
    request = _source_request(with_bodies=masking.reads_bodies)
    for batch in chain.from_iterable(read_part(part, request, inspect, reports.append, last_decoder) for part in parts):
        manifest += refusals.add_batch(batch)
        if batch.column("size").null_count == 0:  # bad ranges have batches of their own
            masked = masking.mask(batch.drop_columns([CORRUPT_RECORD]), packs)
            loose.append(pa.Table.from_batches([masked]))
        if len(loose) >= _MAX_BATCHES:
            rows.append(join_rows(loose))
            loose.clear()
    return [*rows, *loose], [*manifest, *map(ManifestRow.from_queue_report, reports)]


@cache
def _source_request(*, with_bodies: bool) -> Request:
    columns = SOURCE if with_bodies else _COLUMNS
    return Request(arrow_schema(columns), Mode.PERMISSIVE, encoded=True)


def _ignore_profile_window(_: object) -> None:
    """Do nothing with a window of log bytes; used when the bodies are already in a column of the batch."""


def _run_group(
    archive_tasks: ArchiveTasks, inline_limit_bytes: int, task: tuple[int, Sequence[Part]]
) -> list[ManifestRow]:
    return list(archive_tasks.run_task(*task, inline_limit_bytes))


def check_files_written(lake: Lake, manifest: Sequence[ManifestRow]) -> None:
    """Check that data files and packs in folders are complete on this machine; object stores need no check.

    Args:
        manifest: the files, which have been written and not committed.

    Raises:
        LakeError: if a file is missing, or has another size.
    """
    if lake.s3 is None:
        for row in manifest:
            if row.path:
                path = Path(lake.uri(row.table)) / row.path
                _check_written_size(str(path), row.size, _file_size(path))
    if lake.packs.s3 is None:
        store = open_pack_store(lake.packs)
        for row in manifest:
            for name, size in row.pack_sizes.items():
                found = None
                with suppress(PackError):
                    found = store.size(name)
                _check_written_size(f"{lake.bodies_root}/{name}", size, found)


def _file_size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _check_written_size(path: str, written_bytes: int, found_bytes: int | None) -> None:
    if found_bytes != written_bytes:
        there = "no such file" if found_bytes is None else f"{found_bytes:,} bytes"
        raise LakeError(
            f"{path}: a task wrote {written_bytes:,} bytes, but this process found {there}: the task ran on a machine "
            "where this path is a different folder. Nothing was committed. Choose a folder that all machines share, or "
            "an object store"
        )
