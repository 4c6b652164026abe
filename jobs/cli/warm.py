"""Compilation of the log readers for each format at set-up: `python -m commitlake.jobs.cli.warm`.

The compiled code is stored beside the source, or in the user's cache folder if the source folder is read-only. So a
worker's first batch need not compile anything.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.formats.registry import COMMITLOGS, all_formats, get_format
from commitlake.connectors.formats.rocketmq.pulled_records import PulledRecords
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.frames import PackRefs
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.lake.packs.reader import read_bodies
from commitlake.connectors.log_format.format import Format
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.files.segment_windows import Mapping
from commitlake.connectors.reading.index_data.log_range_reader import read_index_data
from commitlake.connectors.reading.index_data.queue_entries import group_entries_by_queue
from commitlake.connectors.reading.options import Mode
from commitlake.connectors.reading.read_request import Request
from commitlake.connectors.reading.snapshots import plan_splits, take_snapshot
from commitlake.connectors.reading.stores import Store, find_stores
from commitlake.connectors.runtime.local_runner import HERE, ProcessRunner
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.pipelines.archive.task import ArchiveTasks
from commitlake.pipelines.rebuild.run import rebuild_store
from commitlake.pipelines.rebuild.settings import RequestedSettings
from commitlake.pipelines.replay.plan_part_rows import COLUMNS
from commitlake.pipelines.replay.sending.batches import encode_part
from commitlake.pipelines.restore.log_rows import RestoreSelection
from commitlake.pipelines.restore.run import restore_store
from commitlake.pipelines.topics.compiled_check import CompiledSchema
from commitlake.pipelines.topics.json_schema import JsonField, JsonKind, JsonType
from commitlake.pipelines.verify.store_precheck import VerifyOptions
from commitlake.pipelines.verify.store_verification import verify_stores
from commitlake.schemas.layouts.rocketmq.commitlog import parse_message
from commitlake.schemas.layouts.segment_names import segment_name
from commitlake.schemas.tables.messages import MESSAGES, SOURCE

_SEGMENT_BYTES = 4096


def compile_all_kernels(runner: Runner = HERE) -> int:
    """Compile the just-in-time compiled loops before they are needed, by processing a small log of each format.

    Args:
        runner: runs a task for each format.

    Returns:
        The rows that were read.
    """
    with tempfile.TemporaryDirectory() as scratch:
        _encode_small_message()
        _decode_pulled_record()
        _check_small_document()
        tasks = [(log_format.name, Path(scratch) / log_format.name) for log_format in all_formats()]
        return sum(rows for _, rows in runner.run(_compile_for_format, tasks))


def _compile_for_format(task: tuple[str, Path]) -> int:
    name, root = task
    log_format = get_format(name)
    segment = root / log_format.folder / segment_name(0)
    for path, data in log_format.make_sample_files(_SEGMENT_BYTES).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    (store,) = find_stores(str(root), formats=all_formats().select_only(log_format))
    _archive_small_log(store, Lake(str(root)))
    if (read_consume_log := log_format.read_consume_log) is not None:
        list(read_consume_log(store.folder, store.broker, None))
    _map_segment_file(segment)
    _find_record_boundary(log_format)
    splits = plan_splits(store, take_snapshot([store]).ranges[store.broker], 64)
    queues = log_format.queues.layout
    for split in splits:  # as `verify` does
        for facts in read_index_data(split):
            for entries in group_entries_by_queue(facts):
                queues.is_written(queues.to_entries(entries))
    wanted = RequestedSettings(index_slots=4, index_entries=16) if log_format.indexes.has_files else RequestedSettings()
    rebuild_store(store, root / "rebuilt", wanted)
    _verify_small_log(log_format, segment.parent, root / "rebuilt")
    if log_format.can_be_restored:
        _restore_small_store(store, Lake(str(root / "lake")), root / "restored")
    request = Request(arrow_schema(SOURCE), Mode.PERMISSIVE)
    return sum(batch.num_rows for split in splits for batch in read_split(split, request))


def _verify_small_log(log_format: Format, log_folder: Path, store_folder: Path) -> None:
    """Verify a small log with its rebuilt indexes, so that the loops that verify logs are compiled."""
    shutil.copytree(log_folder, store_folder / log_format.folder, dirs_exist_ok=True)
    verify_stores(find_stores(str(store_folder), formats=all_formats().select_only(log_format)), VerifyOptions())


def _restore_small_store(store: Store, lake: Lake, target: Path) -> None:
    """Restore a small store from a lake with its keys, so that the loops that restore stores are compiled."""
    run_archive(HERE, Config(store.root, lake, store.broker, quality=False, edges=False))
    restore_store(lake, target, RestoreSelection(store.broker))


def _encode_small_message() -> None:
    """Encode a small message for sending, so that the encoder that `replay` uses is compiled."""
    schema = arrow_schema(MESSAGES.select_columns(COLUMNS))
    row = {"broker": "a", "physical_offset": 0, "sys_flag": 0, "flag": 0, "properties": [("KEYS", "a")]}
    encode_part(pa.Table.from_pylist([row], schema), pa.array([b"a"], pa.large_binary()), "a")


def _check_small_document() -> None:
    """Check a small document, so that the check of `topics` is compiled."""
    schema = JsonType(JsonKind.OBJECT, fields=(JsonField("id", JsonType(JsonKind.INTEGER)),))
    CompiledSchema.compile_schema(schema).find_fitting(pa.array([b"{}"]))


def _archive_small_log(store: Store, lake: Lake) -> None:
    """Run an archive run's tasks on a small log and read a body back, so that the loops they use are compiled."""
    splits = plan_splits(store, take_snapshot([store]).ranges[store.broker], _SEGMENT_BYTES)
    tasks = ArchiveTasks(splits, lake, "warm", "")
    (row,) = (row for row in tasks.run_task(0, splits) if row.table == "messages")
    rows = pq.ParquetFile(f"{lake.uri('messages')}/{row.path}").read(["body_ref", "body_crc"])
    pack, *places = rows.column("body_ref").combine_chunks().flatten()
    refs = PackRefs(*(place.to_numpy(zero_copy_only=False) for place in places))
    read_bodies(open_pack_store(lake.packs), pack[0].as_py(), refs, rows.column("body_crc").to_numpy().astype(np.int64))


def _find_record_boundary(log_format: Format) -> None:
    """Search for a record boundary in a small log, so that the search that splits large segments is compiled."""
    kernel = log_format.kernel
    parts = np.empty((kernel.part_count, 1), np.int64)
    kernel.find_border(np.zeros(_SEGMENT_BYTES, np.uint8), 8, 0, 0, _SEGMENT_BYTES, _SEGMENT_BYTES, 1 << 20, parts)


def _decode_pulled_record() -> None:
    """Decode a record in the form that live brokers send, so that its decoder is compiled."""
    (log_format,) = COMMITLOGS
    segment, *_ = log_format.make_sample_files(_SEGMENT_BYTES).values()
    parsed = parse_message(segment)
    assert parsed is not None, "expected the segment to begin with a whole record"
    request = Request(arrow_schema(SOURCE), Mode.PERMISSIVE)
    for _ in PulledRecords("warm", request).decode_answers([segment[: parsed[1]]]):
        pass


def _map_segment_file(path: Path) -> None:
    with path.open("rb") as file:
        mapping = Mapping.map_file(file.fileno(), 0, _SEGMENT_BYTES)
        if mapping is not None:
            mapping.close()


if __name__ == "__main__":
    compile_all_kernels(ProcessRunner())
