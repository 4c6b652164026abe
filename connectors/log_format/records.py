"""Rules for one record of a log format, in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from commitlake.schemas.layouts.base import Layout
from commitlake.schemas.layouts.rocketmq.scan import ScanFinding, SegmentScanner, SizeLimits


@dataclass(frozen=True)
class RecordRules:
    """Functions that examine, parse and convert single records of a format.

    A record is one message. A format whose records hold several, like Kafka's batches, would need these changes:

    - `parse` and `to_message_row` return a list with an entry for each message.
    - `decode` of its kernel (`reading.kernel.layouts`) writes a row for each message; `parts` keeps one column for each
      record, so that hopping, filters, splits and damage stay as they are. `locate_and_decode_records` then counts
      rows, and
      `Decoder.take_batch` repeats the columns that a record's messages share.
    - `indexes.facts_reader` returns a record's first queue offset and the number of its messages, as it does for
      RocketMQ's inner batches (`IndexData.batch_size`).

    Attributes:
        examine: returns what is at a position, such as a record, as `schemas.layouts.rocketmq.scan.classify_span` does.
        scanner: returns a scanner that turns windows of a segment into spans, from a physical offset on.
        parse: returns the message at the start of some bytes, and its size; the checksum is not compared.
        vouches: returns whether the bytes of a store's `checkpoint` prove that a message's record is on the disk; the
            last argument is whether a broker has closed the store since.
        row_of: converts a message and its broker's name to a row of `messages`: timestamps in ms, no body.
        size_of: returns the size of a record or filler from its first bytes.
        is_filler: returns whether these first bytes are those of a filler.
        own_offset: returns the physical offset stored in a record, from its first bytes; None if they are too few.
        head_bytes: number of first bytes that `size_of` and `is_filler` read. They are not all zeros.
        known_bytes: number of first bytes, before the body, that distinguish a record from every other one.
    """

    examine: Callable[[memoryview, int, int, SizeLimits], ScanFinding]
    scanner: Callable[[int, SizeLimits], SegmentScanner]
    parse: Callable[[memoryview], tuple[Any, int] | None]
    vouches: Callable[[bytes, Any, bool], bool]
    row_of: Callable[[Any, str], dict[str, object]]
    size_of: Callable[[memoryview], int]
    is_filler: Callable[[memoryview], bool]
    own_offset: Callable[[memoryview], int | None]
    head_bytes: int
    known_bytes: int

    @classmethod
    def of_layouts(
        cls,
        *,
        head: Layout,
        offset_field: str,
        filler: Layout,
        filler_magics: Collection[int],
        known_prefix_bytes: int,
        examine_span: Callable[[memoryview, int, int, SizeLimits], ScanFinding],
        make_scanner: Callable[[int, SizeLimits], SegmentScanner],
        parse_message: Callable[..., tuple[Any, int] | None],
        checkpoint_confirms: Callable[[bytes, Any, bool], bool],
        to_row: Callable[[Any, str], dict[str, object]],
    ) -> RecordRules:
        """Return the functions for a format whose records and fillers are declared as layouts.

        Args:
            head: the first fields of a record.
            offset_field: the field of `head` that has the record's own offset.
            filler: the layout of size and magic, with which a record also begins.
            known_prefix_bytes: see the class.
            examine_span: see the class.
            make_scanner: see the class.
            parse_message: parses a record; `verify_crc` sets whether its checksum is compared.
            checkpoint_confirms: see the class.
            to_row: see the class.
        """
        place = [declared.name for declared in head.fields].index(offset_field)
        return cls(
            examine=examine_span,
            scanner=make_scanner,
            parse=lambda data: parse_message(data, verify_crc=False),
            vouches=checkpoint_confirms,
            row_of=to_row,
            size_of=lambda first: int(filler.unpack(first)[0]),
            is_filler=lambda first: filler.unpack(first)[1] in filler_magics,
            own_offset=lambda first: int(head.unpack(first)[place]) if len(first) >= head.size else None,
            head_bytes=filler.size,
            known_bytes=known_prefix_bytes,
        )
