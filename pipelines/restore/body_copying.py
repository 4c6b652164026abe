"""Copies bodies from packs into a segment, reading each pack once from start to end.

The rows of a table file are sorted by topic, so their bodies are spread over many packs. The rows of a segment are
therefore sorted by pack first: each pack is then read once for the segment, many frames at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from commitlake.connectors.arrays_without_pandas import string_bytes_and_offsets
from commitlake.connectors.lake.packs.errors import PackError, PackStoreError
from commitlake.connectors.lake.packs.frames import PackRefs
from commitlake.connectors.lake.packs.pack_stores import PackStore
from commitlake.connectors.lake.packs.reader import FrameCache, read_bodies
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.restore.record_arrays import Records
from commitlake.pipelines.restore.record_writer import copy_spans
from commitlake.schemas.errors import UsageError

_BATCH_BYTES = 32 << 20
"""Size of the bodies that a thread holds in memory at a time; a larger body is read alone."""


@dataclass(frozen=True, slots=True)
class BodySource:
    """Packs from which bodies are read, and whether to skip records whose bodies are missing.

    Attributes:
        store: where the packs are.
        skip: leave out the records whose bodies are missing or damaged; otherwise the first one is an error.
        threads: how many packs are read at the same time.
    """

    store: PackStore
    skip: bool
    threads: int


_NO_BODY = (
    "expected a body in the lake, found no body_ref: the message was erased ('commitlake erase --list'), or another "
    "program wrote its row"
)


def copy_bodies(
    bodies: BodySource, records: Records, packs: Sequence[str], segment_bytes: Array, base_offset: int
) -> dict[int, str]:
    """Copy the bodies of records from packs into a segment, and check their CRC.

    Args:
        bodies: where they are.
        records: the records, all within the segment.
        packs: names of the packs, by their numbers in `records`.
        segment_bytes: uint8, the segment.
        base_offset: physical offset of the start of the segment.

    Returns:
        The records whose bodies cannot be read, by index, each with the reason; empty without `skip`.

    Raises:
        UsageError: for the first body that cannot be read, without `skip`.
    """
    wanted = np.flatnonzero(records.body_sizes)
    lost = {int(row): "the lake has no body of this message" for row in wanted[records.packs[wanted] < 0]}
    if lost and not bodies.skip:
        raise UsageError(_missing_body_text(records, next(iter(lost)), _NO_BODY))
    wanted = wanted[records.packs[wanted] >= 0]
    order = np.lexsort((records.offsets[wanted], records.frame_offsets[wanted], records.packs[wanted]))
    wanted = wanted[order]
    changes = np.flatnonzero(np.diff(records.packs[wanted])) + 1
    groups = [rows for rows in np.split(wanted, changes) if len(rows)]

    def copy_bodies_of_group(rows: Array) -> dict[int, str]:
        return _copy_bodies_of_pack_or_skip(
            bodies, records, rows, packs[int(records.packs[rows[0]])], segment_bytes, base_offset
        )

    with ThreadPoolExecutor(bodies.threads) as pool:
        try:
            for found in pool.map(copy_bodies_of_group, groups):
                lost |= found
        except BaseException:
            # The restore has failed, so the packs that are not begun need not be read.
            pool.shutdown(cancel_futures=True)
            raise
    return lost


def _copy_bodies_of_pack_or_skip(
    bodies: BodySource, records: Records, rows: Array, pack: str, segment_bytes: Array, base_offset: int
) -> dict[int, str]:
    lost: dict[int, str] = {}
    cache = FrameCache(1)
    try:
        if bodies.skip:
            bodies.store.size(pack)  # one request instead of one for each body of a missing pack
    except PackStoreError:
        raise
    except PackError as error:
        return dict.fromkeys(rows.tolist(), str(error))
    for some in _batches_in_memory(records.body_sizes, rows):
        try:
            _copy_bodies_of_pack(bodies.store, records, some, pack, cache, segment_bytes, base_offset)
        except PackStoreError:
            raise
        except PackError as error:
            if not bodies.skip:
                raise UsageError(_missing_body_text(records, int(some[0]), str(error))) from None
            # One damaged frame makes the whole batch fail; one by one, only the bodies in it are lost.
            lost |= _copy_bodies_singly(bodies.store, records, some, pack, segment_bytes, base_offset)
    return lost


def _copy_bodies_singly(
    store: PackStore, records: Records, rows: Array, pack: str, segment_bytes: Array, base_offset: int
) -> dict[int, str]:  # fmt: skip
    """Copy bodies one by one; return the records whose body cannot be read, each with the reason."""
    lost: dict[int, str] = {}
    cache = FrameCache(1)
    for at in range(len(rows)):
        try:
            _copy_bodies_of_pack(store, records, rows[at : at + 1], pack, cache, segment_bytes, base_offset)
        except PackStoreError:
            raise
        except PackError as error:
            lost[int(rows[at])] = str(error)
    return lost


def _copy_bodies_of_pack(
    store: PackStore,
    records: Records,
    rows: Array,
    pack: str,
    cache: FrameCache,
    segment_bytes: Array,
    base_offset: int,
) -> None:
    refs = PackRefs(
        records.frame_offsets[rows], records.frame_lengths[rows], records.offsets[rows], records.body_sizes[rows]
    )
    found = read_bodies(store, pack, refs, records.crcs[rows], cache=cache)
    data, offsets = string_bytes_and_offsets(found)
    copy_spans(
        data,
        offsets[:-1].astype(np.int64),
        records.body_sizes[rows],
        segment_bytes,
        records.body_at[rows] - base_offset,
    )


def _batches_in_memory(sizes: Array, rows: Array) -> Iterator[Array]:
    """Yield the rows in order, in batches that fit into memory."""
    ends = np.cumsum(sizes[rows])
    start = 0
    while start < len(rows):
        taken = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, taken + _BATCH_BYTES, side="right")))
        yield rows[start:end]
        start = end


def _missing_body_text(records: Records, row: int, reason: str) -> str:
    return (
        f"the bodies of the records from physical offset {records.starts[row]} on: {reason}. With --on-missing skip, "
        "their places become fillers, and all else is restored"
    )
