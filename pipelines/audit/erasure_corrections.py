"""Adjusts the expected figures of an audit for erasures: counts stay the same, checksums of some windows change.

The profiles of runs, and stores, describe messages as they were. For each erased message, the table `erasures` has the
hashes of its row before and after the erasure. Their difference, summed by window, is added to the expected checksums.
The other rows of a window are thus still compared with what was archived, and erased rows with what the erasure
recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import to_string_array
from commitlake.connectors.lake.erasures import NOTHING_ERASED, ErasedMessages, open_erasures, parse_erased_messages
from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.audit.audited_ranges import AuditSpan, LogSpan
from commitlake.pipelines.audit.audited_versions import LakeState
from commitlake.pipelines.audit.counts_by_window import SCHEMA, merge_windows, window_starts
from commitlake.pipelines.audit.message_rows import RowCriteria
from commitlake.pipelines.masking.erasure_rows import (
    CHANGED_FIGURES,
    CHECKSUMS,
    newest_row_by_message,
    sum_changes_by_row,
)
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.tables.erasures import MESSAGE_EVENTS, ErasureEvent

_COLUMNS = (
    "number", "event", "at", "erasure_id", "broker", "physical_offset", "topic", "queue_id", "store_timestamp",
    "row_before", "row_after", "lake_before", "lake_after", "detail",
)  # fmt: skip
_EVENTS = to_string_array([str(event) for event in MESSAGE_EVENTS])
_ON_ARRIVAL = to_string_array([str(ErasureEvent.COPY), str(ErasureEvent.AGAIN)])


@dataclass(frozen=True)
class AuditedErasures:
    """Messages of a lake that were erased when the audited versions were written.

    Attributes:
        rows: rows of `erasures`, one for each message.
        pending: number of messages of later erasures that are not yet erased in `messages`.
        counted: number of the newest erasure after which the profiles count messages; 0 for none.
    """

    rows: pa.Table | None = None
    pending: int = field(default=0)
    counted: int = 0

    @property
    def message_count(self) -> int:
        """Number of erased messages."""
        return 0 if self.rows is None else int(self.rows.num_rows)

    @property
    def erased_messages(self) -> ErasedMessages:
        """Brokers and physical offsets of the erased messages."""
        return NOTHING_ERASED if self.rows is None else parse_erased_messages(self.rows, 0)

    @property
    def uncounted_rows(self) -> pa.Table | None:
        """Rows of `erasures` for messages that `profiles` still counts as before their erasure; None for none."""
        if self.rows is None:
            return None
        rows = self.rows.filter(pc.greater(self.rows.column("number"), self.counted)).combine_chunks()
        return rows if rows.num_rows else None

    @property
    def unknown_checksum_count(self) -> int:
        """Number of rows in `uncounted_rows` that lack a checksum."""
        rows = self.uncounted_rows
        return 0 if rows is None else int(sum_changes_by_row(rows)["unknown"].sum())

    def notes(self) -> list[str]:
        """Return sentences on erased messages for the report of an audit."""
        notes = []
        if self.message_count:
            erasures = pc.count_distinct(self.rows.column("number")).as_py() if self.rows is not None else 0
            notes.append(
                f"{self.message_count:,} of the messages are erased, by {format_count(erasures, 'erasure')}: they are "
                "counted as before, and compared without their contents"
            )
        if unknown := self.unknown_checksum_count:
            notes.append(
                f"the table erasures has lost the checksums of {format_count(unknown, 'erased message')}, and a repair "
                f"could not restore them: {' and '.join(CHECKSUMS)} of their windows are not compared"
            )
        if self.pending:
            notes.append(
                f"{self.pending:,} more are to be erased: 'commitlake erase --finish' continues an interrupted erasure"
            )
        return notes

    def window_corrections(self, span: AuditSpan, log_ranges: Sequence[LogSpan] | None) -> pa.Table | None:
        """Return the changes that erasures make to expected counts, by time window; None if there are none.

        Args:
            span: time range of the messages.
            log_ranges: ranges of the brokers' logs; None for all.
        """
        rows = self.uncounted_rows
        if rows is None:
            return None
        rows = RowCriteria(span, log_ranges).select_rows_of(rows)
        if not rows.num_rows:
            return None
        columns = {name: rows.column(name) for name in ("broker", "topic", "queue_id")}
        columns["window_start"] = window_starts(rows.column("store_timestamp"))
        changes = sum_changes_by_row(rows)
        for name in CHANGED_FIGURES:
            columns[name] = pa.array(changes[name], mask=changes["unknown"] if name in CHECKSUMS else None)
        for column in SCHEMA:
            if column.name not in columns:
                is_sum = not column.name.startswith(("first_", "last_", "min_", "max_"))
                zeros = pa.array(np.zeros(rows.num_rows, np.int64))
                columns[column.name] = zeros if is_sum else pa.nulls(rows.num_rows, column.type)
        return merge_windows([pa.table([columns[name] for name in SCHEMA.names], SCHEMA.names)])


def read_erased(lake: Lake, moment: LakeState) -> AuditedErasures:
    """Read which messages were erased at the audited versions.

    Args:
        moment: moment of the lake. Messages of later erasures are included if an archive run has archived them again
            since.
    """
    table = open_erasures(lake)
    if table is None:
        return AuditedErasures()
    rows = table.to_pyarrow_table(columns=list(_COLUMNS))
    rows = rows.filter(pc.is_in(rows.column("event"), _EVENTS))
    was_erased = pc.is_in(rows.column("event"), _ON_ARRIVAL)
    is_done = pc.or_(pc.less_equal(rows.column("number"), moment.erasure), was_erased)
    done = newest_row_by_message(rows.filter(is_done))
    known = parse_erased_messages(done, 0)
    pending = known.drop_erased_rows(rows.filter(pc.invert(is_done))).num_rows
    return AuditedErasures(done if done.num_rows else None, pending, moment.counted_erasure)
