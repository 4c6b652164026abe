"""Many places of logs, looked up in `messages` by one scan: a query with a condition for each would take far longer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from commitlake.connectors.lake.sql import join_with_or, text_literal
from commitlake.connectors.numpy_arrays import Array

_MAX_RANGES = 200
"""Number of ranges of logs that a query names."""


class WantedMessages:
    """Set of wanted messages, each given by broker and physical offset, that tracks which messages were found.

    Args:
        offsets: By broker, the physical offsets, sorted and each once.
    """

    def __init__(self, offsets: Mapping[str, Array]) -> None:
        self._offsets = offsets
        self._is_found = {broker: np.zeros(len(found), np.bool_) for broker, found in offsets.items()}

    @classmethod
    def of(cls, places: Iterable[tuple[str, int]]) -> WantedMessages:
        """Return a set of the given messages, each a broker and a physical offset."""
        by_broker: dict[str, set[int]] = {}
        for broker, offset in places:
            by_broker.setdefault(broker, set()).add(offset)
        return cls({broker: np.array(sorted(found), np.int64) for broker, found in by_broker.items()})

    def condition(self) -> str:
        """Return a SQL condition for a few ranges of physical offsets that contain all wanted messages.

        Statistics of files and row groups leave out what is not in these ranges.
        """
        found = []
        for broker, offsets in self._offsets.items():
            widest = np.argsort(np.diff(offsets))[::-1][: max(0, _MAX_RANGES // len(self._offsets) - 1)]
            cuts = (np.sort(widest) + 1).tolist()
            found += [
                f"(broker = {text_literal(broker)} AND physical_offset >= {int(offsets[start])} "
                f"AND physical_offset <= {int(offsets[end - 1])})"
                for start, end in zip([0, *cuts], [*cuts, len(offsets)], strict=True)
            ]
        return join_with_or(found) if found else "false"

    def select(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of wanted messages, and remember that these messages were found.

        Args:
            rows: rows with the columns `broker` (of Arrow's type string) and `physical_offset`.
        """
        is_chosen = np.zeros(rows.num_rows, np.bool_)
        brokers = rows.column("broker").dictionary_encode()
        codes, values = np.asarray(brokers.indices), rows.column("physical_offset").to_numpy()
        for code, broker in enumerate(brokers.dictionary.to_pylist()):
            wanted = self._offsets.get(broker)
            if wanted is None:
                continue
            own = np.flatnonzero(codes == code)
            positions = np.minimum(np.searchsorted(wanted, values[own]), len(wanted) - 1)
            is_hit = wanted[positions] == values[own]
            is_chosen[own[is_hit]] = True
            self._is_found[broker][positions[is_hit]] = True
        return rows.filter(pa.array(is_chosen))

    @property
    def missing_count(self) -> int:
        """Number of wanted messages that were not found."""
        return sum(int((~marks).sum()) for marks in self._is_found.values())

    def first_missing(self) -> tuple[str, int] | None:
        """Return broker and offset of a wanted message that was not found; None if all were found."""
        for broker, marks in self._is_found.items():
            if not marks.all():
                return broker, int(self._offsets[broker][np.flatnonzero(~marks)[0]])
        return None
