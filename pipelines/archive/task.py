"""One task of an archive run: ranges of logs into packs and data files, without a row that crosses into the JVM.

A task that is done again, after a failure or beside a slow one, writes packs and data files of its own: only those of
the attempt whose manifest arrives are committed.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from commitlake.connectors.formats.engine.options import Mode
from commitlake.connectors.formats.engine.refused import CORRUPT_RECORD
from commitlake.connectors.formats.engine.request import Request
from commitlake.connectors.lake.data_files import DataFile
from commitlake.connectors.lake.erasures import NOTHING_ERASED, ErasedPlaces
from commitlake.connectors.lake.manifest import ManifestRow, TaskProfile
from commitlake.connectors.lake.packs.location import PackLocation
from commitlake.connectors.lake.packs.stores import open_store
from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.lake.queue_reports import QueueReport
from commitlake.connectors.runtime.runner import Runner, divided
from commitlake.pipelines.archive.again_erased import AgainErased
from commitlake.pipelines.archive.bodies import BodyPacks
from commitlake.pipelines.archive.parts import Part, read_part
from commitlake.pipelines.archive.refusals import Refusals
from commitlake.pipelines.archive.rows import WaitingRows, join_rows
from commitlake.pipelines.archive.staged import inline_bytes, stage_profile
from commitlake.pipelines.masking.archiving import ArchiveMasks
from commitlake.pipelines.topic_minutes.files import MinutesFiles
from commitlake.schemas.tables.messages import BODY, SOURCE

_COLUMNS = StructType([field for field in SOURCE if field.name != BODY.name])


_MOST_BATCHES = 8  # each keeps all of the kernel's buffers, however little it fills of them
_MOST_SPLITS = 8  # of one task, which is done again as a whole
_MAX_CLOSING = 16  # files of a task that are open at once: rows of a broken clock have as many dates


@dataclass(frozen=True)
class ArchiveTasks:
    """The tasks of one run.

    Attributes:
        splits: the ranges; each has packs of its own, a data file may hold the rows of several.
        lake: where the tables lie.
        bodies: where packs go.
        run_id: part of the files' names, so that runs do not meet there.
        parser_version: for the rows of what could not be read.
        profiled: whether a profile of the rows is wanted.
        erased: messages of the ranges that were erased before, when an earlier version of the lake had them.
        masks: by which rows and bodies are masked; None for none.
    """

    splits: Sequence[Part]
    lake: LakePaths
    bodies: PackLocation
    run_id: str
    parser_version: str
    profiled: bool = True
    erased: ErasedPlaces = NOTHING_ERASED
    masks: ArchiveMasks | None = None

    def run_all(self, runner: Runner, advance: Callable[[int], None] = lambda _: None) -> Iterator[ManifestRow]:
        """Do all ranges, several of them in each task.

        Args:
            runner: what runs the tasks.
            advance: is told how many bytes of the log more are done.

        Yields:
            The manifest: a row for each file, and one for each task.
        """
        if not self.splits:
            return
        # A task costs Spark some 50 ms besides its work: two rounds of the cores, unless the ranges are many.
        count = max(2 * runner.cores, -(-len(self.splits) // _MOST_SPLITS))
        groups = divided(range(len(self.splits)), count)
        for number, rows in runner.run(partial(_run_group, self, inline_bytes(len(groups))), groups):
            yield from rows
            advance(sum(self.splits[each].size for each in groups[number]))

    def run(self, numbers: Sequence[int], most_inline: int = inline_bytes(1)) -> Iterator[ManifestRow]:
        """Do the task for some of the ranges; a row for each file, and one for all that goes with them.

        Args:
            numbers: of the ranges.
            most_inline: bytes of a profile that goes to the driver in the manifest; a larger one is staged.
        """
        # Two attempts of one task at the same time must not write into one another's files.
        name = f"part-{numbers[0]:05d}-{self.run_id}-{secrets.token_hex(4)}"
        minutes = MinutesFiles(self.lake, name, self.run_id)
        refusals = Refusals(self.lake, name, self.run_id, self.parser_version, hides_bytes=self.masks is not None)
        masking = Masking(self.masks)
        pack_bytes = 0
        with ThreadPoolExecutor(1) as background:
            closing = _Closing(background)
            again = AgainErased(self.lake, name, self.erased, self.parser_version) if self.erased else None
            waiting = WaitingRows(self.lake, name, minutes, closing.add, profiled=self.profiled, erased=again)
            for number in numbers:
                with ExitStack() as open_packs:
                    packs = open_packs.enter_context(
                        BodyPacks(self.splits[number], open_store(self.bodies), self.erased)
                    )
                    rows, refused = _read(self.splits[number], packs, refusals, masking)
                    yield from refused
                    written = packs.finish()
                    closing.add(open_packs.pop_all().close)
                pack_bytes += sum(pack.refs.end for pack in written)
                if rows:
                    yield from _manifest_of(waiting.add(rows, written))
                    del rows
            yield from _manifest_of(waiting.write())
            yield from (ManifestRow.of_file(file, "topic_minutes") for file in minutes.finish())
            yield from (ManifestRow.of_file(file, "erasures") for file in (again.finish() if again else ()))
            yield from refusals.finish()
            profile: TaskProfile | None = None
            if waiting.profile is not None:
                profile = stage_profile(waiting.profile, self.lake, self.run_id, name, most_inline)
            closing.finish()
        yield ManifestRow.of_task(pack_bytes, refusals.counts, refusals.first, profile, masking.left_out)


class _Closing:
    """Closes a task's files in another thread, so that the task continues while they are written to disk."""

    def __init__(self, thread: Executor) -> None:
        self._thread = thread
        self._pending: deque[Future[None]] = deque()

    def add(self, close: Callable[[], None]) -> None:
        """Close a file later; wait for others if too many are open."""
        if len(self._pending) >= _MAX_CLOSING:
            self._pending.popleft().result()
        self._pending.append(self._thread.submit(close))

    def finish(self) -> None:
        """Wait for all files.

        Raises:
            Exception: what closing one has raised.
        """
        for one in self._pending:
            one.result()


def _manifest_of(files: Iterable[DataFile]) -> Iterator[ManifestRow]:
    return (ManifestRow.of_file(file, "messages") for file in files)


class Masking:
    """Masks the batches of a task.

    Args:
        masks: the rules; None for none.

    Attributes:
        left_out: bodies that could not be masked, and were left out.
    """

    def __init__(self, masks: ArchiveMasks | None) -> None:
        self._masks = masks
        self.left_out = 0

    @property
    def reads_bodies(self) -> bool:
        """True if masks change bodies, which are then read as a column."""
        return self._masks is not None and self._masks.reads_bodies

    def mask(self, batch: pa.RecordBatch, packs: BodyPacks) -> pa.RecordBatch:
        """Return the rows of a batch without their bodies, which go to the packs if they are a column."""
        if self._masks is None:
            return batch
        batch, left_out = self._masks.mask_rows(batch)
        self.left_out += left_out
        if not self.reads_bodies:
            return batch
        packs.add_rows(batch)
        return batch.drop_columns([BODY.name])


def _read(
    part: Part, packs: BodyPacks, refusals: Refusals, masking: Masking
) -> tuple[list[pa.Table], list[ManifestRow]]:
    """The messages of a range, their bodies on their way into packs, and what is to be told of the range.

    The latter are rows for the files that refusals have filled, and for the queues that were pulled.
    """
    rows: list[pa.Table] = []
    manifest: list[ManifestRow] = []
    reports: list[QueueReport] = []
    look = _look_at_nothing if masking.reads_bodies else packs.add
    for batch in read_part(part, _request(with_bodies=masking.reads_bodies), look, reports.append):
        manifest += refusals.add(batch)
        if batch.column("size").null_count == 0:  # bad ranges have batches of their own
            masked = masking.mask(batch.drop_columns([CORRUPT_RECORD]), packs)
            rows.append(pa.Table.from_batches([masked]))
        if len(rows) >= _MOST_BATCHES:
            rows = [join_rows(rows)]
    return rows, [*manifest, *map(ManifestRow.of_queue, reports)]


def _request(*, with_bodies: bool) -> Request:
    columns = SOURCE if with_bodies else _COLUMNS
    return Request(to_arrow_schema(columns, timezone="UTC"), Mode.PERMISSIVE, encoded=True)


def _look_at_nothing(_: object) -> None:
    """Take nothing from the window: bodies are in the batch."""


def _run_group(tasks: ArchiveTasks, most_inline: int, numbers: Sequence[int]) -> list[ManifestRow]:
    return list(tasks.run(numbers, most_inline))
