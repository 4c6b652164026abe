"""The question of a story, and its limits."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from commitlake.schemas.errors import CommitLakeError, ExitCode
from commitlake.schemas.times import iso_text

MAX_RECORDS = 1_000
"""Default limit of matching records in a story; if there are more, the newest are taken."""
MAX_STEPS = 5_000
"""Largest number of steps in a story."""
_MAX_SHOWN = 200


class LineageError(CommitLakeError):
    """The question is invalid, or the lake cannot answer it; the message is for users."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True, slots=True)
class Question:
    """A question: one of `key`, `message_id` and `place`, with options.

    Attributes:
        key: A business key.
        message_id: An offset message id, or a client's message id (UNIQ_KEY).
        place: Broker and physical offset of a record.
        start: Only records stored at or after this time.
        end: Only records stored before this time.
        depth: Number of edges to follow from matching records; None for all.
        related_by: A property; records that share its value with matching records are included.
        limit: Largest number of matching records; if there are more, the newest are taken.

    Raises:
        LineageError: if not exactly one of the three is given, or a number is out of range.
    """

    key: str | None = None
    message_id: str | None = None
    place: tuple[str, int] | None = None
    start: datetime.datetime | None = None
    end: datetime.datetime | None = None
    depth: int | None = None
    related_by: str | None = None
    limit: int = MAX_RECORDS

    def __post_init__(self) -> None:
        asked = [name for name in ("key", "message_id", "place") if getattr(self, name) is not None]
        if len(asked) != 1:
            raise LineageError(f"expected one of key, message id and offset, found {' and '.join(asked) or 'none'}")
        if self.depth is not None and self.depth < 0:
            raise LineageError(f"depth: expected 0 or more, found {self.depth}")
        if self.limit < 1:
            raise LineageError(f"limit: expected 1 or more, found {self.limit}")
        if self.place is not None and not 0 <= self.place[1] < 1 << 63:
            raise LineageError("offset: expected 0 to 2^63 - 1, found a number below or above")

    @property
    def words(self) -> str:
        """The question in words."""
        if self.place is not None:
            text = f"offset {self.place[0]}:{self.place[1]}"
        elif self.message_id is not None:
            text = f"message id {self.message_id[:_MAX_SHOWN]}"
        else:
            text = f"key {(self.key or '')[:_MAX_SHOWN]}"
        if self.start is not None:
            text += f", from {iso_text(self.start)}"
        if self.end is not None:
            text += f", before {iso_text(self.end)}"
        if self.related_by is not None:
            text += f" and those with the same {self.related_by[:_MAX_SHOWN]}"
        return text
