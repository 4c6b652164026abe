"""Compiled rules for the entries that a broker appends to a queue, and their positions.

A record that the queue has already is passed over, and so is one whose number is before the queue's end, other than 0.
A record with a number further on is still appended directly after the last one: a queue has no holes, and what
follows a record that the log lost stands in front of its number. Source: ConsumeQueue.putMessagePositionInfo.
"""

from __future__ import annotations

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.engine.kernel.compiled import compiled

END, PHYSICAL_END, SKIPPED, SHIFTED = range(4)
"""Positions in `state`: queue offset of the end, physical end of the last record, skipped and shifted entries."""
STATE_SIZE = 4


@compiled
def choose_entries(numbers: Array, offsets: Array, sizes: Array, state: Array, kept: Array) -> None:
    """Choose the entries that are appended to a queue with a file.

    Args:
        numbers: int64, queue offsets.
        offsets: int64, physical offsets.
        sizes: int64, bytes of the records.
        state: int64[STATE_SIZE], goes on.
        kept: bool out.
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
