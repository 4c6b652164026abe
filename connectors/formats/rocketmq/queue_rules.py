"""Compiled rules for the entries that a broker appends to a queue, and their positions.

A record that the queue already has is skipped, and so is one with a queue offset before the queue's end, other than 0.
A record with a queue offset after the queue's end is still appended directly after the last entry, because a queue has
no holes. So after a record that the log lost, entries are before the positions of their queue offsets.
Source: ConsumeQueue.putMessagePositionInfo.
"""

from __future__ import annotations

from commitlake.connectors.arrays import Array
from commitlake.connectors.reading.kernel.compiled import compiled

END, PHYSICAL_END, SKIPPED, SHIFTED = range(4)
"""Positions in `state`: queue offset of the end, physical end of the last record, skipped and shifted entries."""
STATE_SIZE = 4


@compiled
def choose_entries(numbers: Array, offsets: Array, sizes: Array, state: Array, kept: Array) -> None:
    """Choose the entries that a broker would append to a queue's files, in the output array `kept`.

    Args:
        numbers: int64, queue offsets.
        offsets: int64, physical offsets.
        sizes: int64, bytes of the records.
        state: int64[STATE_SIZE], updated.
        kept: bool out, whether each entry is appended.
    """
    for row in range(len(numbers)):
        number = numbers[row]
        kept[row] = False
        if offsets[row] + sizes[row] <= state[PHYSICAL_END] or (number != 0 and number < state[END]):
            state[SKIPPED] += 1
            continue
        kept[row] = True
        if number > state[END]:
            state[SHIFTED] += 1
        state[END] += 1
        state[PHYSICAL_END] = offsets[row] + sizes[row]
