"""Check of an index entry's time, which is in whole seconds since the file's first message."""

from __future__ import annotations

from collections.abc import Iterable


def check_index_times(entries: Iterable[tuple[int, int, float]]) -> None:
    """Compare the time of each entry with that of its record.

    A broker counts the seconds of a file's first entry from the last entry of the previous file.

    Args:
        entries: number of the entry in its file, from 1, time of its record and time of the entry, in ms since 1970; in
            the order in which the broker wrote them.
    """
    before: int | None = None
    for number, stored, indexed in entries:
        late = max(0, stored - before) // 1000 * 1000 if number == 1 and before is not None else 0
        assert 0 <= stored - indexed + late < 1000, (number, stored, indexed, before)
        before = stored
