"""Walks that make no progress, or whose segment is deleted meanwhile, end in an error."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest

from commitlake.connectors.formats.rocketmq.kernel.records import COMMITLOG_PART_COUNT
from commitlake.connectors.log_format.kernel import WalkArguments
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.decoding.decoder import Decoder
from commitlake.connectors.reading.errors import CommitLogError, StoreError
from commitlake.connectors.reading.files.segment_files import LocalFile, OpenSegment, Window
from commitlake.connectors.reading.kernel import record_walk as kernel
from commitlake.connectors.reading.options import Mode
from commitlake.connectors.reading.read_request import Filters, Request
from commitlake.connectors.reading.segment_walk import WalkEnd, walk_records
from commitlake.schemas.errors import ExitCode
from tests.support.batches import log_of, rows_of, source_schema, splits_of
from tests.support.exit_codes import exits
from tests.support.logs import messages, new_message, open_segment

NOTHING = np.empty((COMMITLOG_PART_COUNT, 0), np.int64)


@pytest.mark.parametrize("stop", [kernel.STOP_ROOM, kernel.STOP_WINDOW])
def test_a_hop_without_progress_is_an_error(tmp_path: Path, stop: int) -> None:
    (split,) = splits_of(tmp_path, log_of(messages(3)))

    def stuck(arguments: WalkArguments, state: Array, faults: Array) -> Array:
        state[kernel.STOP] = stop
        return NOTHING

    with (
        OpenSegment(split.path) as file,
        pytest.raises(CommitLogError, match=r"byte 0 \(physical offset 0\): expected"),
    ):
        list(walk_records(file, split, 1 << 20, 1 << 20, WalkEnd(), locate_records=stuck))


class DeletedObject:
    """A segment in an object store, which is deleted when a part of it was read."""

    def __init__(self, path: str, end: int) -> None:
        self._file, self._end = LocalFile(path), end

    def read_into(self, window: Window, position: int) -> int:
        """See SegmentFile."""
        if position + len(window) > self._end:
            raise FileNotFoundError
        return self._file.read_into(window, position)

    def size(self) -> int:
        """See SegmentFile."""
        return self._file.size()

    def close(self) -> None:
        """See SegmentFile."""


def test_a_segment_that_is_deleted_while_it_is_read_is_an_error_and_no_gap(tmp_path: Path) -> None:
    (split,) = splits_of(tmp_path, log_of(messages(30)))
    with pytest.raises(FileNotFoundError):
        list(walk_records(DeletedObject(split.path, 0), split, 1000, 1 << 20, WalkEnd()))
    steps = walk_records(DeletedObject(split.path, 1500), split, 1000, 1 << 20, WalkEnd())
    assert next(steps).parts.shape[1]
    with pytest.raises(
        StoreError, match="was deleted while it was read: read the store again", check=exits(ExitCode.FAILED)
    ):
        list(steps)


def test_the_error_for_a_record_too_large_for_any_batch_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A record with bytes that are not UTF-8 is decoded a second time, from its repaired properties.
    data = log_of([new_message(0, properties=(("k", "v" * 9),))]).replace(b"v" * 9, b"\xff" * 9)
    (split,) = splits_of(tmp_path, data)
    decode = Decoder.decode_batch
    monkeypatch.setattr(Decoder, "decode_batch", lambda *arguments: decode(*arguments).first_rows(0))
    with pytest.raises(CommitLogError, match=r"physical offset 0\): expected room for the columns of one record"):
        list(read_split(split, Request(source_schema(), Mode.PERMISSIVE)))


def test_no_row_is_lost_when_filtered_records_are_decoded_again(tmp_path: Path) -> None:
    """Distinct topics take space that the second decoding does not have; rows that do not fit are in another batch."""
    count, size = 3300, 120
    chance = random.Random(1)
    sent = [new_message(0)] + [new_message(number, topic="t" * size) for number in range(count)]
    data = re.sub(b"t" * size, lambda _: bytes(chance.choices(range(0x80, 0xC0), k=size)), open_segment(sent, 2 << 20))
    splits = splits_of(tmp_path, data)
    filters = Filters(topics=frozenset({"\ufffd" * size}))
    assert len(rows_of(splits, Mode.DROPMALFORMED, "queue_offset", filters=filters)) == count
