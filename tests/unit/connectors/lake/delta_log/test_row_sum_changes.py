"""Changes of sums, as commits record them."""

from __future__ import annotations

from commitlake.connectors.lake.delta_log.row_sum_changes import NOTHING_CHANGED, UNKNOWN, SumChange, compute_sum_change


def test_commits_tell_how_they_change_the_sum() -> None:
    files = ['{"numRecords":1,"rowSum":7}', '{"numRecords":1,"rowSum":-2}']
    assert compute_sum_change(files, [10]) == SumChange(-5)
    assert compute_sum_change(files, replaces_all_files=True) == SumChange(5, is_total=True)
    assert compute_sum_change([*files, "{}"]) == compute_sum_change(files, [None]) == UNKNOWN
    for change in (SumChange(-5), SumChange(5, is_total=True), UNKNOWN, NOTHING_CHANGED):
        assert SumChange.parse(str(change)) == change
    assert SumChange.parse(None) is None
    assert SumChange.parse("9" * 5000) == UNKNOWN
    assert (SumChange(-5).apply_to(3), SumChange(-5).apply_to(None), SumChange(5, is_total=True).apply_to(None)) == (
        -2,
        None,
        5,
    )
    assert SumChange(1).apply_to((1 << 63) - 1) == -(1 << 63)
