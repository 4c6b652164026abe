"""Tasks that count the messages in a store, one for each split of a log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.erasures import ErasedPlaces
from commitlake.connectors.log_format.format import Formats
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.options import Mode, ReadOptions
from commitlake.connectors.reading.planning import plan_read
from commitlake.connectors.reading.request import Filters, Request
from commitlake.connectors.reading.snapshots import Snapshot, StoreRange
from commitlake.connectors.reading.splits import Split
from commitlake.pipelines.archive.row_buffer import join_rows
from commitlake.pipelines.audit.message_rows import RowCriteria
from commitlake.pipelines.audit.windows import merge_windows, to_windows
from commitlake.pipelines.masking.archiving import ArchiveMasks
from commitlake.pipelines.masking.erased_rows import erase_rows
from commitlake.schemas.tables.messages import BODY, BODY_REF, CORRUPT_RECORD, MESSAGES, SOURCE

_COLUMNS = SOURCE.without(BODY.name)
_PART_ROWS = 1 << 16
_MAX_BATCHES = 8  # each keeps all of the kernel's buffers, even if it fills little of them


def splits_of(
    path: str, broker: str | None, ranges: Mapping[str, StoreRange], layout: Formats, split_bytes: int
) -> Sequence[Split]:
    """Plan the reading of ranges of the brokers' logs.

    Args:
        path: stores, as for `find_stores`.
        broker: name of the store, if the path does not have it.
        ranges: range of each broker's log.
        layout: formats of stores to take from the path.
        split_bytes: maximum size of a split.
    """
    given = {"path": path, "snapshot": Snapshot(ranges).to_json(), "maxPartitionBytes": str(split_bytes)}
    options = ReadOptions.parse(given | ({} if broker is None else {"broker": broker}), formats=layout)
    return plan_read(options, Filters()).splits


def count_split(wanted: RowCriteria, masks: ArchiveMasks | None, erased: ErasedPlaces, split: Split) -> pa.Table:
    """Count the messages of a split by window, without bad ranges. Returns a table of `AUDIT`.

    Args:
        wanted: criteria for the messages.
        masks: rules by which the lake's messages are masked; None for none.
        erased: messages to count as the lake has them after their erasure.
        split: part of a store's log.
    """
    return merge_windows([to_windows(wanted.of(_as_erased(rows, erased))) for rows in _read(split, masks)])


def _as_erased(rows: pa.Table, erased: ErasedPlaces) -> pa.Table:
    """Return rows of a store as `messages` has them after erasures."""
    if not erased:
        return rows
    place = pa.nulls(rows.num_rows, arrow_schema(MESSAGES).field(BODY_REF.name).type)
    return erase_rows(rows.append_column(BODY_REF.name, place), erased)[0].drop_columns([BODY_REF.name])


def _read(split: Split, masks: ArchiveMasks | None) -> Iterator[pa.Table]:
    with_bodies = masks is not None and masks.reads_bodies
    columns = SOURCE if with_bodies else _COLUMNS
    request = Request(arrow_schema(columns), Mode.PERMISSIVE, encoded=True)
    waiting: list[pa.Table] = []
    for batch in read_split(split, request):
        if batch.column("size").null_count:  # bad ranges have batches of their own
            continue
        rows = batch.drop_columns([CORRUPT_RECORD.name])
        if masks is not None:
            rows, _ = masks.mask_rows(rows)
        waiting.append(pa.Table.from_batches([rows.drop_columns([BODY.name]) if with_bodies else rows]))
        if len(waiting) >= _MAX_BATCHES or sum(table.num_rows for table in waiting) >= _PART_ROWS:
            yield join_rows(waiting)
            waiting = []
    if waiting:
        yield join_rows(waiting)
