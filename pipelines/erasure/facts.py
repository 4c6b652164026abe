"""Facts about erasures for evidence: counts and checksums, but no keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.erasure.ledger import ErasureState, read_rows
from commitlake.schemas.tables.erasures import ErasureEvent
from commitlake.schemas.times import iso_text

_CHECKSUMS = ("row_after", "lake_after")  # a sum of hashes before the erasure would confirm a guess of contents


def erasure_facts(lake: Lake, states: Sequence[ErasureState]) -> Iterator[dict[str, Any]]:
    """Yield the facts of each finished erasure, up to the first one that is not finished.

    Args:
        states: states of erasures, the oldest first.
    """
    for state in states:
        if state.erased_at is None:
            return
        rows = read_rows(lake)
        is_own = pc.and_(
            pc.equal(rows.column("number"), state.number), pc.equal(rows.column("event"), str(ErasureEvent.MESSAGE))
        )
        own = rows.filter(is_own)
        sums = {name: _sum_text(own.column(name)) for name in _CHECKSUMS}
        yield {
            "number": state.number,
            "erasure_id": state.erasure_id,
            "reason": state.reason,
            "begun_at": iso_text(state.begun_at, "milliseconds"),
            "erased_at": iso_text(state.erased_at, "milliseconds"),
            "messages": state.messages,
            "messages_version": lake.table("messages").version(),
            "counts": dict(state.counts),
            "checksums": sums,
        }


def _sum_text(hashes: pa.ChunkedArray) -> str | None:
    """Return the sum of hashes as hexadecimal digits; None if a repair has restored a row without its hash."""
    if hashes.null_count:
        return None
    return f"{int(hashes.to_numpy().view(np.uint64).sum(dtype=np.uint64)):016x}"


def purge_facts(lake: Lake, states: Sequence[ErasureState]) -> Iterator[dict[str, Any]]:  # noqa: ARG001 (as above)
    """Yield the facts of each purged erasure, up to the first one that is not purged; arguments as above."""
    for state in states:
        if state.purged_at is None:
            return
        purged_at = iso_text(state.purged_at, "milliseconds")
        yield {"number": state.number, "erasure_id": state.erasure_id, "purged_at": purged_at}
