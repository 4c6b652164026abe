"""Changes of sums, as commits record them."""

from __future__ import annotations

from commitlake.connectors.lake.delta_log.sum_changes import NOTHING_CHANGED, UNKNOWN, SumChange, change_of


def test_commits_tell_how_they_change_the_sum() -> None:
    files = ['{"numRecords":1,"rowSum":7}', '{"numRecords":1,"rowSum":-2}']
    assert change_of(files, [10]) == SumChange(-5)
    assert change_of(files, is_total=True) == SumChange(5, is_total=True)
    assert change_of([*files, "{}"]) == change_of(files, [None]) == UNKNOWN
    for change in (SumChange(-5), SumChange(5, is_total=True), UNKNOWN, NOTHING_CHANGED):
        assert SumChange.parse(str(change)) == change
    assert SumChange.parse(None) is None
    assert SumChange.parse("9" * 5000) == UNKNOWN
    assert (SumChange(-5).after(3), SumChange(-5).after(None), SumChange(5, is_total=True).after(None)) == (-2, None, 5)
    assert SumChange(1).after((1 << 63) - 1) == -(1 << 63)
