"""Progress of an HBase table, in a row of the table itself, so that dropping the table resets both.

Progress is written only after HBase has acknowledged the rows, and only if the row still has the value that was read
before (compare-and-set). So a run never sets the table back, and never writes to a table that was dropped meanwhile.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from commitlake.connectors.hbase.client import Client
from commitlake.connectors.hbase.errors import ConcurrentFollowError, HBaseError
from commitlake.connectors.hbase.keys import CONTROL

_ROW = CONTROL + b"progress"
_COLUMN = b"p:progress"


@dataclass(frozen=True, slots=True)
class TableProgress:
    """Progress of an HBase table: the version of `messages` that it has reached.

    Attributes:
        followed: id of the Delta table `messages`.
        version: the newest version that is completely written; None during the first load.
        loading: during the first load, the version it began with. Rows of this and later versions may be in the table.
    """

    followed: str
    version: int | None
    loading: int | None = None

    def serialize(self) -> bytes:
        """Return the progress in the form in which a cell of the HBase table stores it."""
        return json.dumps(asdict(self)).encode()


def read_progress(client: Client) -> TableProgress | None:
    """Read the table's progress, or None if no run has begun.

    Raises:
        HBaseError: if the stored progress cannot be parsed.
    """
    value = client.get([_ROW], _COLUMN).get(_ROW)
    if value is None:
        return None
    try:
        return TableProgress(**json.loads(value))
    except (ValueError, TypeError):
        raise HBaseError(
            f"the progress that is stored in the HBase table {client.options.table} is {value[:200]!r}: expected JSON. "
            "Drop the table, and the next archive run creates it again from the lake"
        ) from None


def write_progress(client: Client, expected_progress: TableProgress | None, new_progress: TableProgress) -> None:
    """Write new progress, unless the table's progress is no longer the expected one.

    Raises:
        ConcurrentFollowError: if the stored progress is another one.
    """
    before = None if expected_progress is None else expected_progress.serialize()
    if client.check_and_put(_ROW, _COLUMN, before, new_progress.serialize()):
        return
    found = read_progress(client)
    if found != new_progress:  # if equal, the write succeeded and was repeated
        raise ConcurrentFollowError(
            f"another run writes to the HBase table {client.options.table} at the same time: expected the progress "
            f"{expected_progress} in it, found {found}. Nothing is lost, because both write the same rows; the next "
            "run continues from there"
        )
