"""Facts about rows of the table: the place of records and bodies, and rows that are not records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np

from commitlake.connectors.arrays import Array

NEEDED = (
    "physical_offset", "size", "topic", "queue_id", "queue_offset", "born_timestamp", "store_timestamp", "born_host",
    "store_host", "sys_flag", "flag", "reconsume_times", "prepared_transaction_offset", "body_size", "body_crc",
    "properties",
)  # fmt: skip
COLUMNS = (*NEEDED, "unique_key", "body_ref")


class Refusal(IntEnum):
    """The reason why a row is not a record."""

    NONE = 0
    NO_VALUE = 1
    HOST = 2
    TOPIC = 3
    SIZE = 4
    PROPERTIES = 5
    BODY_PLACE = 6

    @property
    def text(self) -> str:
        """The reason in words."""
        return _WORDS[self]


_WORDS = {
    Refusal.NONE: "",
    Refusal.NO_VALUE: "a column without a value that every record has",
    Refusal.HOST: "a host that is no ip:port, or not of the kind that sys_flag says",
    Refusal.TOPIC: "a topic that no record has room for",
    Refusal.SIZE: "a size that is less than what the record holds",
    Refusal.PROPERTIES: "properties that the table does not have as they were stored",
    Refusal.BODY_PLACE: "a body_ref that is not of a body of body_size bytes",
}


@dataclass(frozen=True, slots=True)
class Records:
    """Columns of facts about rows; every array has one value for each row.

    Attributes:
        starts: physical offsets.
        sizes: bytes.
        times: store times, ms.
        refusals: see `Refusal`.
        made_up: whether the properties' text is not the broker's, or may not be.
        by_rule: whether the properties' text repeats a batch's UNIQ_KEY, CLUSTER or WAIT by the broker's rule.
        body_at: physical offsets of the bodies.
        body_sizes: bytes.
        crcs: of the bodies.
        packs: numbers of the packs, -1 where the row has no `body_ref`.
        frame_offsets: see `connectors.lake.packs.frames.PackRefs`.
        frame_lengths: likewise.
        offsets: likewise.
    """

    starts: Array
    sizes: Array
    times: Array
    refusals: Array
    made_up: Array
    by_rule: Array
    body_at: Array
    body_sizes: Array
    crcs: Array
    packs: Array
    frame_offsets: Array
    frame_lengths: Array
    offsets: Array

    def take(self, rows: Array) -> Records:
        """Return a selection of the rows, by index or boolean mask."""
        return Records(*(getattr(self, field.name)[rows] for field in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[Records]) -> Records:
        """Concatenate several sets of rows."""
        names = [field.name for field in fields(cls)]
        if not parts:
            return cls(*(np.zeros(0, np.int64) for _ in names))
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
