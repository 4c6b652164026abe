"""Messages that an audit counts: by time, by stretch of the log, and the data files that can hold them."""

from __future__ import annotations

import datetime

import pytest

from commitlake.connectors.lake.delta_log.versions import AddedFile
from commitlake.pipelines.audit.audited_ranges import AuditSpan, LogSpan
from commitlake.pipelines.audit.message_rows import RowCriteria
from tests.support.profiles import NOON, message, table_of

MINUTE = datetime.timedelta(minutes=1)


@pytest.mark.parametrize(
    ("span", "offsets"),
    [
        (AuditSpan(), [0, 60_000, 120_000, 999]),
        (AuditSpan(NOON + MINUTE), [60_000, 120_000]),
        (AuditSpan(NOON, NOON + MINUTE), [0]),
        (AuditSpan(None, NOON), []),
    ],
)
def test_a_message_without_a_time_is_in_a_span_without_bounds(span: AuditSpan, offsets: list[int]) -> None:
    rows = [*(message(number) for number in (0, 60, 120)), message(physical_offset=999, store_timestamp=None)]
    assert RowCriteria(span).select_rows_of(table_of(rows)).column("physical_offset").to_pylist() == offsets


def test_messages_are_selected_by_stretches_of_their_brokers_logs() -> None:
    places = [("a", 0), ("a", 191), ("a", 300), ("a", 391), ("b", 0), ("c", 5), (None, 5), ("a", None)]
    rows = table_of([message(broker=broker, physical_offset=offset) for broker, offset in places])
    wanted = RowCriteria(AuditSpan(), [LogSpan("a", 300, 391), LogSpan("a", 0, 191), LogSpan("c", 5, 6)])
    chosen = wanted.select_rows_of(rows)
    assert list(
        zip(chosen.column("broker").to_pylist(), chosen.column("physical_offset").to_pylist(), strict=True)
    ) == [
        ("a", 0),
        ("a", 300),
        ("c", 5),
    ]


@pytest.mark.parametrize(
    ("times", "may"),
    [
        ((None, None), True),  # the log does not know them
        ((0, 5), True),
        ((9, 10), True),
        ((10 + 1, 20), False),
        ((-9, -1), False),
        ((10, 20), True),  # a millisecond more or less may have been cut off
    ],
)
def test_a_file_is_skipped_by_its_times_in_the_delta_log(times: tuple[int | None, int | None], may: bool) -> None:
    first, last = (None if minutes is None else NOON + minutes * MINUTE for minutes in times)
    file = AddedFile("path", "name", None, 0, 1, first, last)
    assert RowCriteria(AuditSpan(NOON, NOON + 10 * MINUTE)).may_have_rows(file) is may
