"""Conversion of a split to Arrow batches, which is the work of a task.

A batch holds some thousands of records, minus those that the filters drop, in the requested columns. The mode
determines what a damaged range becomes: an error, a row with `_corrupt_record`, or a count in the log. Keys, and topics
in displayed form, are compared in the decoded columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.log_format.files import SegmentFile
from commitlake.connectors.log_format.kernel import BadRange
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.damage import BadRangeCounter, bad_range_rows, count_and_describe_bad_range
from commitlake.connectors.reading.decoding.columns import DecodedBatch, Texts
from commitlake.connectors.reading.decoding.decoder import Decoder
from commitlake.connectors.reading.decoding.row_batch import Notes, RowBatch, describe_invalid_utf8, record_fault
from commitlake.connectors.reading.errors import CommitLogError, no_progress_error
from commitlake.connectors.reading.files.segment_files import OpenSegment
from commitlake.connectors.reading.kernel import record_walk as kernel
from commitlake.connectors.reading.listed_records import select_wanted_parts, walk_listed_records
from commitlake.connectors.reading.options import Mode
from commitlake.connectors.reading.read_request import Request
from commitlake.connectors.reading.segment_walk import WalkEnd, walk_records
from commitlake.connectors.reading.splits import ListedSplit, Split
from commitlake.schemas.layouts.rocketmq.scan import Fault

KEY_COLUMNS = frozenset({"unique_key", "keys"})
"""Columns that must be decoded so that records can be compared with keys."""


def row_mask_by_keys(decoded_batch: DecodedBatch, wanted_keys: frozenset[str]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return a mask of the records whose unique key, or one of whose business keys, is wanted.

    Properties that are not UTF-8 have no columns yet; their repaired text is compared.
    """
    found = match_keys(decoded_batch.column("unique_key"), decoded_batch.column("keys"), wanted_keys)
    for row in decoded_batch.rows_with_invalid_text().tolist():
        found[row] = not wanted_keys.isdisjoint(decoded_batch.keys_after_repair(row))
    return found


def row_mask_by_topics(
    decoded_batch: DecodedBatch, wanted_topics: frozenset[str]
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return a mask of the records whose displayed topic is wanted."""
    topics = _decode_dictionary(decoded_batch.column("topic"))
    found: np.ndarray[Any, np.dtype[np.bool_]] = pc.is_in(
        topics, value_set=pa.array(sorted(map(str, wanted_topics)), pa.string())
    ).to_numpy(zero_copy_only=False)
    return found


def match_keys(
    unique_keys: pa.Array, keys: pa.Array, wanted_keys: frozenset[str]
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return a mask of the records whose unique key, or one of whose business keys, is wanted.

        unique_keys  keys         wanted {"a"}
        "a"          null         True
        null         ["b", "a"]   True
        "b"          ["b"]        False

    Args:
        unique_keys: strings, null if a record has none.
        keys: lists of strings, null if a record has none.
        wanted_keys: keys; one match is sufficient.
    """
    chosen = pa.array(sorted(wanted_keys), pa.string())
    found: np.ndarray[Any, np.dtype[np.bool_]] = np.zeros(len(keys), bool)
    found |= pc.is_in(_decode_dictionary(unique_keys), value_set=chosen).to_numpy(zero_copy_only=False)
    hits = pc.is_in(_decode_dictionary(keys.flatten()), value_set=chosen)
    # A key in several entries of one list sets its row several times, which is harmless.
    found[pc.list_parent_indices(keys).filter(hits).to_numpy(zero_copy_only=False)] = True
    return found


def _decode_dictionary(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


BatchInspector = Callable[[DecodedBatch], None]


class DecoderCache:
    """Cache of the last split's decoder, so that the next split can reuse it and its repeated strings.

    It is for a task that reads several splits, one after the other.
    """

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()
        self._request: Request | None = None
        self._decoder: Decoder | None = None

    def get_decoder(
        self, decoder_class: type[Decoder], columns: frozenset[str], split: Split, request: Request
    ) -> Decoder:
        """Return the cached decoder if it is for this store, these columns and this request; else a new one."""
        # The request is compared by identity, because the filters, in the form of the kernel, belong to the decoder.
        key = (decoder_class, columns, split.broker)
        if self._decoder is None or self._key != key or self._request is not request:
            self._decoder = decoder_class(columns, split.broker, request.filters, encoded=request.encoded)
            self._key, self._request = key, request
        else:
            self._decoder.begin_split()
        return self._decoder


def read_split(
    split: Split,
    request: Request,
    inspect_batch: BatchInspector | None = None,
    last_decoder: DecoderCache | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read a split, and yield its wanted records as Arrow batches of rows.

    Args:
        split: the range to read.
        inspect_batch: receives the records of each batch before the batch is yielded, while their window is valid.
        last_decoder: the decoder of the split before, if all of that was read.

    Raises:
        DamagedLogError: in mode FAILFAST, for a range that holds no intact record.
        CommitLogError: if the range does not end at the end of a record.
    """
    refused = BadRangeCounter(split, request)
    if split.missing:
        yield from _missing_segment_rows(split, request, refused, "no such file")
    else:
        try:
            with OpenSegment(split.path) as file:
                reader = RowReader(split, request, refused, last_decoder=last_decoder)
                yield from _read_file(file, split, request, refused, reader, inspect_batch)
        # Deleted by the broker between plan and read: reported as missing, like a segment that the plan did not find.
        except FileNotFoundError:
            yield from _missing_segment_rows(split, request, refused, "deleted since it was listed")
    refused.log_counts()


def _missing_segment_rows(
    split: Split, request: Request, bad_range_counter: BadRangeCounter, found: str
) -> Iterator[pa.RecordBatch]:
    value = bad_range_counter.count_bad_range(
        split.start, split.end, Fault.MISSING_SEGMENT, f"the segment {split.path}", found, b""
    )
    yield from bad_range_rows([value], split, request)


def _read_file(
    file: SegmentFile,
    split: Split,
    request: Request,
    bad_range_counter: BadRangeCounter,
    reader: RowReader,
    inspect_batch: BatchInspector | None,
) -> Iterator[pa.RecordBatch]:
    end = WalkEnd()
    if isinstance(split, ListedSplit):
        yield from _read_listed_records(file, split, request, bad_range_counter, reader)
        return
    hop = reader.decoder.locate_next_records
    for step in walk_records(file, split, request.max_batch_bytes, request.max_record_bytes, end, locate_records=hop):
        rows = step.parts.shape[1]
        if step.bad and request.mode is Mode.FAILFAST:  # faults in later records must not be reported first
            rows = int(np.searchsorted(step.parts[kernel.START], step.bad[0].start - step.origin))
        if rows:
            decoded = reader.decoder.take_batch(step.window, step.origin, step.parts).first_rows(rows)
            if inspect_batch is not None:
                inspect_batch(decoded)
            yield from reader.make_row_batches(decoded)
        if step.bad:
            yield from bad_range_rows(
                [count_and_describe_bad_range(file, split, bad, request, bad_range_counter) for bad in step.bad],
                split,
                request,
            )
    # The plan cut inside a record. The next split began in the middle of its body, so its rows cannot be right either.
    if end.stop == kernel.STOP_LIMIT and end.position > split.end:
        whole_bytes = split.segment_end - split.base_offset
        raise CommitLogError(
            f"{split.path}: the log was divided inside the record before physical offset {split.end}, which extends to "
            f"{end.position}, because its body contains bytes that look like records. Read the log undivided, in "
            f"partitions of {whole_bytes} bytes (the source's option maxPartitionBytes; commitlake archive: "
            f"--partition-mib {-(-whole_bytes >> 20)})"
        )
    # Zeros before the range's end, which the snapshot had placed after a record: they are a hole now.
    if end.stop == kernel.STOP_UNWRITTEN and end.position < split.end:
        hole = BadRange(end.position, split.end, Fault.HOLE)
        yield from bad_range_rows(
            [count_and_describe_bad_range(file, split, hole, request, bad_range_counter)], split, request
        )


def _read_listed_records(
    file: SegmentFile, split: ListedSplit, request: Request, bad_range_counter: BadRangeCounter, reader: RowReader
) -> Iterator[pa.RecordBatch]:
    for step in walk_listed_records(file, split, request.max_batch_bytes, request.max_record_bytes):
        parts = select_wanted_parts(step, request.filters, split.format)
        if step.bad and request.mode is Mode.FAILFAST:
            parts = parts[:, : np.searchsorted(parts[kernel.START], step.bad[0].start - step.origin)]
        yield from reader.decode_located_records(step.window, step.origin, parts)
        if step.bad:
            yield from bad_range_rows(
                [count_and_describe_bad_range(file, split, bad, request, bad_range_counter) for bad in step.bad],
                split,
                request,
            )


class RowReader:
    """Converter of the records of one split to Arrow batches with the wanted rows and columns."""

    def __init__(
        self,
        split: Split,
        request: Request,
        refused: BadRangeCounter,
        decoder: type[Decoder] | None = None,
        last_decoder: DecoderCache | None = None,
    ) -> None:
        """Prepare to decode the records of one split.

        Args:
            split: a split of the store, with the records' format.
            refused: handles bad ranges: raises an error, or counts them.
            decoder: a decoder in place of the format's own.
            last_decoder: see `read_split`.
        """
        self._split = split
        self._request = request
        self._refused = refused
        columns = set(request.schema.names)
        if request.filters.keys is not None:
            columns |= KEY_COLUMNS
        if request.filters.compares_topics_as_text:
            columns.add("topic")
        kind = decoder or split.format.kernel.decoder
        self.decoder = (last_decoder or DecoderCache()).get_decoder(kind, frozenset(columns), split, request)

    def decode_located_records(
        self, window: Array, window_offset: int, record_parts: Array, inspect_batch: BatchInspector | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Decode records whose positions are given, and yield them as Arrow batches of rows."""
        for _, decoded in self._decode_batches(window, window_offset, record_parts):
            if inspect_batch is not None:
                inspect_batch(decoded)
            yield from self.make_row_batches(decoded)

    def _decode_batches(
        self, window: Array, window_offset: int, record_parts: Array
    ) -> Iterator[tuple[int, DecodedBatch]]:
        """Yield decoded batches, each with as many records as fit, and with the index of its first record."""
        first = 0
        while first < record_parts.shape[1]:
            decoded = self.decoder.decode_batch(window, window_offset, record_parts[:, first:])
            # An empty batch has room for the largest record. If it did not, this loop would never end.
            if not decoded.row_count:
                path, base, offset = (
                    self._split.path,
                    self._split.base_offset,
                    window_offset + int(record_parts[kernel.START, first]),
                )
                raise no_progress_error(
                    path, base, offset, "room for the columns of one record", "none in an empty batch"
                )
            yield first, decoded
            first += decoded.row_count

    def _wanted_row_mask(self, decoded_batch: DecodedBatch) -> Array:
        """Return a mask of the records that pass the filters which the compiled loops have not applied."""
        filters = self._request.filters
        wanted = np.ones(decoded_batch.row_count, bool)
        if filters.topics is not None and filters.compares_topics_as_text:
            wanted &= row_mask_by_topics(decoded_batch, filters.topics)
        if filters.keys is not None:
            wanted &= row_mask_by_keys(decoded_batch, filters.keys)
        return wanted

    def make_row_batches(self, decoded_batch: DecodedBatch) -> Iterator[pa.RecordBatch]:
        """Yield the wanted rows of a decoded batch; the records are decoded again if only a part of them is wanted."""
        wanted = self._wanted_row_mask(decoded_batch)
        if wanted.all():
            yield from self._make_batches(decoded_batch)
        elif wanted.any():
            # The wanted records are decoded again, so that the next steps work on whole batches, whose buffers hold no
            # other rows.
            for _, some in self._decode_batches(
                decoded_batch.window, decoded_batch.origin, decoded_batch.parts[:, wanted]
            ):
                yield from self._make_batches(some)

    def _make_batches(self, decoded_batch: DecodedBatch) -> Iterator[pa.RecordBatch]:
        """Yield Arrow batches of all records of a decoded batch; several if invalid UTF-8 must be replaced first."""
        damaged = decoded_batch.rows_with_invalid_text()
        if not len(damaged):
            yield from RowBatch(decoded_batch, self._request, self._refused).make_batches()
            return
        notes, replaced = self._repair_texts(decoded_batch, damaged)
        # The repaired texts may be longer, so they are appended to a copy of the window, and the batch is decoded again
        # from it.
        window, parts = decoded_batch.replace_texts(replaced)
        for first, mended in self._decode_batches(window, decoded_batch.origin, parts):
            here = {row - first: value for row, value in notes.items() if first <= row < first + mended.row_count}
            yield from RowBatch(mended, self._request, self._refused, here).make_batches()

    def _repair_texts(self, decoded_batch: DecodedBatch, damaged_rows: Array) -> tuple[Notes, dict[int, Texts]]:
        """Replace bytes that are not UTF-8 by U+FFFD, as the brokers' decoders do, and report the affected records."""
        notes: Notes = {}
        replaced: dict[int, Texts] = {}
        for row in damaged_rows.tolist():
            replaced[row] = {}
            for text in decoded_batch.invalid_texts(row):
                replaced[row][text.part] = text.repaired
                if text.name:
                    expected, found = f"{text.name} in UTF-8", describe_invalid_utf8(text.raw)
                    fault = Fault.PROPERTIES_ENCODING
                    record_fault(notes, decoded_batch, row, self._refused, fault, expected, found, text.raw)
        return notes, replaced
