"""Compiled rules for the entries that a broker appends to a queue, and their positions.

A record that the queue already has is skipped, and so is one with a queue offset before the queue's end, other than 0.
A record with a queue offset after the queue's end is still appended directly after the last entry, because a queue has
no holes. So after a record that the log lost, entries are before the positions of their queue offsets.
Source: ConsumeQueue.putMessagePositionInfo.
"""

from __future__ import annotations

from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.kernel.compile_options import compiled

END, PHYSICAL_END, SKIPPED, SHIFTED = range(4)
"""Positions in `state`: queue offset of the end, physical end of the last record, skipped and shifted entries."""
STATE_SIZE = 4


@compiled
def choose_entries(
    queue_offsets: Array, physical_offsets: Array, record_sizes: Array, queue_state: Array, appended_mask: Array
) -> None:
    """Mark in `appended_mask` the entries that a broker would append to a queue's files.

    Args:
        queue_offsets: int64, queue offsets.
        physical_offsets: int64, physical offsets.
        record_sizes: int64, bytes of the records.
        queue_state: int64[STATE_SIZE], updated.
        appended_mask: bool out, whether each entry is appended.
    """
    for row in range(len(queue_offsets)):
        number = queue_offsets[row]
        appended_mask[row] = False
        # The broker's two reasons to skip an entry: its record is behind the last one entered, or its queue offset is
        # taken.
        if physical_offsets[row] + record_sizes[row] <= queue_state[PHYSICAL_END] or (
            number != 0 and number < queue_state[END]
        ):
            queue_state[SKIPPED] += 1
            continue
        appended_mask[row] = True
        if number > queue_state[END]:
            queue_state[SHIFTED] += 1
        # By one, also for a shifted entry: the file has no place for a gap, so the position is what counts from now on.
        queue_state[END] += 1
        queue_state[PHYSICAL_END] = physical_offsets[row] + record_sizes[row]
