"""Updates checksums in `profiles` for windows whose messages a repair has read from a store again.

Their bodies have new places in packs, so `lake_checksum`, which runs have recorded, differs. It is the only figure that
may: the others still prove that the messages are those that were archived.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Transaction

from commitlake.connectors.lake.delta_log.file_actions import TableFile, read_table_files
from commitlake.connectors.lake.delta_log.row_sum_changes import wrap_int64
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.audit.audited_ranges import AuditSpan
from commitlake.pipelines.audit.audited_versions import read_lake_state
from commitlake.pipelines.audit.compared_sides import AuditSides, open_audit_sides
from commitlake.pipelines.audit.counts_by_window import window_starts
from commitlake.pipelines.maintenance.file_replacement import replace_table_files
from commitlake.pipelines.repair.refill_from_stores import find_files_refilled_since
from commitlake.pipelines.repair.repeat_runs import REFILL_ID
from commitlake.schemas.tables.profile import KEY_COLUMNS
from commitlake.schemas.times import epoch_us, with_time_zone

_CHECKSUM = "lake_checksum"
_Window = tuple[str, str, int, int | None]
"""Broker, topic, queue, and the window's start in microseconds since 1970."""


def update_refilled_checksums(lake: Lake, runner: Runner) -> None:
    """Update the checksums in `profiles` of windows whose messages a repair has read again from a store.

    Args:
        lake: the lake, whose tables must be intact.
    """
    profiles = lake.find("profiles")
    if profiles is None:
        return
    reached = profiles.transaction_version(REFILL_ID)
    refilled = find_files_refilled_since(lake, reached or -1)
    is_new = reached == 0  # profiles that runs have written again have no places of the lake at all
    if not refilled.paths and not is_new:
        return
    windows = set() if is_new else set(_windows_of_files(lake, refilled.paths))
    with open_audit_sides(runner, lake, AuditSpan(), read_lake_state(lake)) as sides:
        changes = {window: change for window, change in _find_checksum_changes(sides) if is_new or window in windows}
    removed, added = _rewrite_profiles(lake, read_table_files(profiles), changes)
    number = Transaction(REFILL_ID, max(refilled.version, 1))
    replace_table_files(
        lake, "profiles", removed, added, changes_data=True, note={"action": "repair"}, transactions=[number]
    )


def _windows_of_files(lake: Lake, paths: Sequence[str]) -> Iterator[_Window]:
    folder = lake.open_folder("messages")
    for path in paths:
        with folder.open_input_file(path) as source:
            rows = pq.read_table(source, columns=["broker", "topic", "queue_id", "store_timestamp"])
        starts = window_starts(rows.column("store_timestamp"))
        distinct = rows.select(["broker", "topic", "queue_id"]).append_column("window_start", starts)
        yield from _window_keys(distinct.group_by(list(KEY_COLUMNS)).aggregate([]))


def _window_keys(rows: pa.Table) -> Iterator[_Window]:
    names = [rows.column(name).to_pylist() for name in KEY_COLUMNS[:-1]]
    yield from zip(*names, rows.column(KEY_COLUMNS[-1]).cast(pa.int64()).to_pylist(), strict=True)


def _find_checksum_changes(sides: AuditSides) -> Iterator[tuple[_Window, int]]:
    """Yield each time window whose messages have another checksum than runs recorded, with the difference."""
    counted = sides.read_counted_part()
    if counted is None:
        return
    with sides.profile_run_counts() as expected, sides.profile_messages(counted.stretches) as found:
        sides.correct_for_erasures(expected, counted.stretches)
        limit = expected.count_totals().windows + found.count_totals().windows
        for row in expected.compare_with(found, [_CHECKSUM], limit).rows:
            before, after = row[f"expected_{_CHECKSUM}"], row[f"found_{_CHECKSUM}"]
            if before is not None and after is not None:
                broker, topic, queue_id, start = (row[name] for name in KEY_COLUMNS)
                yield (
                    (broker, topic, queue_id, None if start is None else epoch_us(with_time_zone(start))),
                    after - before,
                )


def _rewrite_profiles(
    lake: Lake, files: Sequence[TableFile], changes: Mapping[_Window, int]
) -> tuple[list[TableFile], list[TableFile]]:
    """Write new data files of `profiles` with changed checksums, and return the replaced and the new files."""
    left: dict[_Window, int] = dict(changes)
    removed, added = [], []
    for file in files if left else ():
        with lake.open_folder("profiles").open_input_file(unquote(file.path)) as source:
            rows = pq.read_table(source, page_checksum_verification=True)
        checksums: list[Any] = rows.column(_CHECKSUM).to_pylist()
        is_changed = False
        for number, window in enumerate(_window_keys(rows)):
            if checksums[number] is not None and window in left:
                checksums[number], is_changed = wrap_int64(checksums[number] + left.pop(window)), True
        if is_changed:
            column = rows.schema.get_field_index(_CHECKSUM)
            rows = rows.set_column(column, rows.schema.field(column), pa.array(checksums, pa.int64()))
            name = f"part-kept-{file.path.rpartition('/')[2]}"
            new = write_plain_file(rows, lake, "profiles", name)
            removed.append(file)
            added.append(TableFile(new.path, {}, new.size, new.rows, file.modified_ms, statistics=new.statistics))
    return removed, added
