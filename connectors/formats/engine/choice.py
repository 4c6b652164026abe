"""Filters of a read in the form that the kernel uses."""

from __future__ import annotations

import numpy as np

from commitlake.connectors.formats.engine.filters import Filters
from commitlake.connectors.formats.engine.kernel.buffers import Choice
from commitlake.connectors.formats.engine.kernel.decode import END_OFFSET, END_STORE_TIME, MIN_OFFSET, MIN_STORE_TIME
from commitlake.connectors.formats.engine.kernel.memory import PADDING

_INT32 = np.iinfo(np.int32)
_INT64 = np.iinfo(np.int64)


def make_choice(filters: Filters) -> Choice:
    """Return the filters for the kernel, without those that apply to decoded columns; see `keys`."""
    bounds = np.array([_INT64.min, _INT64.max, _INT64.min, _INT64.max])
    for place, bound in (
        (MIN_OFFSET, filters.min_offset),
        (END_OFFSET, filters.end_offset),
        (MIN_STORE_TIME, filters.min_store_timestamp),
        (END_STORE_TIME, filters.end_store_timestamp),
    ):
        if bound is not None:
            bounds[place] = min(max(bound, _INT64.min), _INT64.max)
    wanted_topics = None if filters.topics_by_text else filters.topics
    topics = [name.encode() for name in sorted(wanted_topics or ())]
    queue_ids = [number for number in sorted(filters.queue_ids or ()) if _INT32.min <= number <= _INT32.max]
    if (wanted_topics is not None and not topics) or (filters.queue_ids is not None and not queue_ids):
        bounds[END_OFFSET] = _INT64.min  # an empty set selects nothing
    chooses = bool(topics or queue_ids or (bounds != [_INT64.min, _INT64.max, _INT64.min, _INT64.max]).any())
    return Choice(
        chooses=chooses,
        bounds=bounds,
        queue_ids=np.array(queue_ids, np.int32),
        topics=np.frombuffer(b"".join(topics).ljust(sum(map(len, topics)) + PADDING, b"\0"), np.uint8),
        topic_offsets=np.cumsum([0, *map(len, topics)], dtype=np.int64),
    )
