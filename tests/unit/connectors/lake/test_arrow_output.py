"""Tests for the buffer between Arrow's writers and Python's files."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commitlake.connectors.lake.rows.data_files import open_arrow_output

MIB = 1 << 20


class Pieces(io.BytesIO):
    """A file that counts the pieces in which it is written."""

    count = 0

    def write(self, data: object, /) -> int:
        """Count the piece and keep it."""
        self.count += 1
        return super().write(data)  # type: ignore[arg-type]


def test_a_parquet_file_arrives_whole_and_in_one_piece_for_each_mebibyte() -> None:
    rows = pa.table({f"column_{place}": range(50_000) for place in range(20)})
    file = Pieces()
    with open_arrow_output(file) as output:
        pq.write_table(rows, output, compression="none", data_page_size=1024)
        size = output.tell()
    written = file.getvalue()
    assert size == len(written)
    assert pq.read_table(io.BytesIO(written)).equals(rows)
    assert file.count <= size // MIB + 2


def test_a_piece_that_is_larger_than_the_buffer_is_written_too() -> None:
    file = Pieces()
    with open_arrow_output(file) as output:
        output.write(b"before")
        output.write(bytes(3 * MIB))
        output.write(b"after")
    assert file.getvalue() == b"before" + bytes(3 * MIB) + b"after"


def _write_some_rows(file: io.BytesIO) -> None:
    """Write a little, and fail then."""
    with open_arrow_output(file) as output:
        output.write(b"some rows")
        raise ValueError("no further rows")


def test_the_file_stays_open_after_a_block_with_or_without_an_error() -> None:
    file = Pieces()
    with pytest.raises(ValueError, match="no further rows"):
        _write_some_rows(file)
    with open_arrow_output(file) as output:
        output.write(b"more")
    del output
    assert not file.closed


class Full(io.BytesIO):
    """A file on a disk without space."""

    def write(self, _: object, /) -> int:
        """Fail like a file on a full disk."""
        raise OSError(28, "No space left on device")


def test_an_error_of_the_last_piece_is_raised() -> None:
    with pytest.raises(OSError, match="No space left"), open_arrow_output(Full()) as output:
        output.write(b"rows")


def test_an_error_of_the_block_is_not_hidden_by_one_of_the_file() -> None:
    with pytest.raises(ValueError, match="no further rows"):
        _write_some_rows(Full())
