"""Facts about rows of `messages`: where their records and bodies are, and which rows cannot become records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np

from commitlake.connectors.numpy_arrays import Array

NEEDED = (
    "physical_offset", "size", "topic", "queue_id", "queue_offset", "born_timestamp", "store_timestamp", "born_host",
    "store_host", "sys_flag", "flag", "reconsume_times", "prepared_transaction_offset", "body_size", "body_crc",
    "properties",
)  # fmt: skip
COLUMNS = (*NEEDED, "unique_key", "body_ref")


class Refusal(IntEnum):
    """Reason why a row of `messages` cannot be restored as a record."""

    NONE = 0
    NO_VALUE = 1
    HOST = 2
    TOPIC = 3
    SIZE = 4
    PROPERTIES = 5
    BODY_PLACE = 6

    @property
    def text(self) -> str:
        """The reason as text for users."""
        return _REFUSAL_TEXTS[self]


_REFUSAL_TEXTS = {
    Refusal.NONE: "",
    Refusal.NO_VALUE: "a required column without a value, as in the row of an erased message",
    Refusal.HOST: "a host that is not ip:port, or not of the IP version in sys_flag",
    Refusal.TOPIC: "a topic that is too long for a record",
    Refusal.SIZE: "a size smaller than the fields of the record",
    Refusal.PROPERTIES: "properties whose stored form is not in the table",
    Refusal.BODY_PLACE: "a body_ref to a body with another size than body_size",
}


@dataclass(frozen=True, slots=True)
class Records:
    """Positions, sizes and other values of the records to restore, as arrays with one value for each record.

    Attributes:
        starts: physical offsets.
        sizes: sizes of the records in bytes.
        times: store times, ms.
        refusals: members of `Refusal`.
        made_up: true if the text of the properties is not, or may not be, the broker's.
        by_rule: true if the text of the properties repeats UNIQ_KEY, CLUSTER or WAIT of a batch, as brokers do.
        body_at: physical offsets of the bodies.
        body_sizes: sizes of the bodies in bytes.
        crcs: CRC-32 of the bodies.
        packs: numbers of the packs; -1 for rows without `body_ref`.
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

    def select_rows(self, rows: Array) -> Records:
        """Return the records with the given indexes, or those for which a mask is True."""
        return Records(*(getattr(self, field.name)[rows] for field in fields(self)))

    @classmethod
    def concatenate_parts(cls, parts: Sequence[Records]) -> Records:
        """Return the records of several parts as one."""
        names = [field.name for field in fields(cls)]
        if not parts:
            return cls(*(np.zeros(0, np.int64) for _ in names))
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
