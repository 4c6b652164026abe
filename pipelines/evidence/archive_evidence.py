"""Data on archive runs to be signed as evidence, from their commits and the profiles of their messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow.compute as pc

from commitlake.connectors.lake.archive_commits import ArchiveCommit, commits_after
from commitlake.connectors.lake.lake import Lake
from commitlake.schemas.tables.profile import OPTIONAL_CHECKSUMS

_CHECKSUMS = ("checksum", *OPTIONAL_CHECKSUMS)


def collect_archive_evidence(lake: Lake, after_sequence: int) -> Iterator[dict[str, Any]]:
    """Yield the data to be signed as evidence for each archive run after the given one, oldest first.

    Args:
        after_sequence: sequence of the newest run that has evidence already.
    """
    for commit in commits_after(lake, after_sequence):
        yield _make_run_evidence(lake, commit)


def _make_run_evidence(lake: Lake, commit: ArchiveCommit) -> dict[str, Any]:
    counts = commit.counts
    stores = {
        broker: {"start": part.start, "end": part.end, "last_record_digest": _last_record_digest(commit, broker)}
        for broker, part in sorted(commit.ranges.items())
    }
    return {
        "sequence": commit.sequence,
        "run_id": commit.run_id,
        "started_at": counts.started_at if counts else None,
        "stores": stores,
        "messages": counts.messages if counts else None,
        "erased_on_arrival": sum(file.rows for file in commit.files.get("erasures", ())),
        "quarantined": counts.quarantined if counts else None,
        "gaps": counts.gaps if counts else None,
        "bytes": commit.log_bytes,
        "checksums": _profile_checksums(lake, commit.run_id),
    }


def _last_record_digest(commit: ArchiveCommit, broker: str) -> str | None:
    last = commit.stores[broker].last_record
    return None if last is None else last.digest


def _profile_checksums(lake: Lake, run_id: str) -> dict[str, str] | None:
    """Return the sums of the checksums that a run recorded in `profiles`, in hexadecimal; None if there are none."""
    table = lake.find("profiles")
    if table is None:
        return None
    known = {field.name for field in table.schema().fields}
    wanted = [name for name in _CHECKSUMS if name in known]
    rows = table.to_pyarrow_table(columns=["run_id", *wanted], filters=[("run_id", "=", run_id)])
    if not rows.num_rows:
        return None
    return {
        # Checksums are sums modulo 2^64; Parquet has them as signed numbers, which would overflow.
        name: f"{int(rows.column(name).to_numpy().view(np.uint64).sum(dtype=np.uint64)):016x}"
        for name in wanted
        # A null of one store means that this checksum was not computed for all messages.
        if not pc.any(pc.is_null(rows.column(name))).as_py()
    }
