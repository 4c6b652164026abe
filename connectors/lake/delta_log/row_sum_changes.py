"""Changes of the sum of a table's rows, as commits record them, and sums in footers and statistics of data files.

`row_sums` computes sums, for which it needs compiled code; what only reads a table needs this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from commitlake.connectors.lake.delta_log.entries import parse_json
from commitlake.schemas.layouts.integer_parsing import parse_int64

if TYPE_CHECKING:
    import pyarrow.parquet as pq

FOOTER_KEY = b"commitlake.row_sum"
"""Key of the sum in the metadata of a Parquet file."""
STATISTICS_KEY = "rowSum"
"""Key of the sum in the statistics of a file in the log, which readers of Delta ignore."""
COMMIT_KEY = "commitlake.rowSum"
"""Key of a `SumChange` in the `commitInfo` of a commit."""
_CHANGE = re.compile(r"(=?)(-?\d{1,19})")


@dataclass(frozen=True, slots=True)
class SumChange:
    """Change that a commit makes to a table's row sum, a checksum of all its rows in any order.

    Attributes:
        number: what the commit adds to the sum, or the new sum; None if it is not known.
        is_total: True if the commit replaces all rows.
    """

    number: int | None = 0
    is_total: bool = False

    def apply_to(self, previous_sum: int | None) -> int | None:
        """Return a table's row sum (checksum of all rows) after the commit, given that before it; None if unknown."""
        if self.number is None or self.is_total:
            return self.number
        return None if previous_sum is None else wrap_int64(previous_sum + self.number)

    def __str__(self) -> str:
        return "?" if self.number is None else f"{'=' * self.is_total}{self.number}"

    @classmethod
    def parse(cls, text: object) -> SumChange | None:
        """Parse the change from a commit's metadata; return None if there is none, as in commits of other programs."""
        if not isinstance(text, str):
            return None
        # A text of a later version, or a damaged one: the sum is unknown then, not unchanged.
        found = _CHANGE.fullmatch(text)
        return cls(parse_int64(found[2]), bool(found[1])) if found else cls(None)


NOTHING_CHANGED = SumChange()
UNKNOWN = SumChange(None)


def compute_sum_change(
    added_statistics: Iterable[str], removed_row_sums: Iterable[int | None] = (), *, replaces_all_files: bool = False
) -> SumChange:
    """Return the change of a table's row sum (checksum of all rows) by a commit that adds and removes files.

    Args:
        added_statistics: the statistics of the files that it adds, as JSON.
        removed_row_sums: the sums of the files that it removes.
        replaces_all_files: True if the added files replace all others.
    """
    total = 0
    for text in added_statistics:
        number = parse_json(text).get(STATISTICS_KEY)
        if number is None:
            return UNKNOWN
        total += int(number)
    for known in removed_row_sums:
        if known is None:
            return UNKNOWN
        total -= known
    return SumChange(wrap_int64(total), replaces_all_files)


def read_footer_sum(metadata: pq.FileMetaData) -> int | None:
    """Return the row sum, a checksum of all rows of the file, in a Parquet footer's metadata; None if it has none."""
    text = (metadata.metadata or {}).get(FOOTER_KEY)
    return None if text is None else parse_int64(text.decode("ascii", "replace"))


def wrap_int64(number: int) -> int:
    """Wrap an integer to the range of signed 64-bit integers."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
