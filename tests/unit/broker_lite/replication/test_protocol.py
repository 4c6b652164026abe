"""Tests of frames between a master and a slave: complete, cut at each byte, and invalid."""

from __future__ import annotations

import random
import struct

import pytest

from commitlake.broker_lite.errors import PeerError
from commitlake.broker_lite.replication.protocol import (
    MAX_BODY_BYTES,
    REPORT,
    TRANSFER,
    LogChunk,
    MasterSide,
    SlaveSide,
)

SEGMENT = 4096
LOG = range(2 * SEGMENT, 4 * SEGMENT + 100)
"""Three segments of a log whose first two have gone."""


def report(offset: int) -> bytes:
    return struct.pack(">q", offset)


def transfer(offset: int, body: bytes, size: int | None = None) -> bytes:
    return struct.pack(">qi", offset, len(body) if size is None else size) + body


@pytest.mark.parametrize(
    ("first", "begins"),
    [
        (0, 4 * SEGMENT),  # an empty slave: the last segment
        (LOG.start, LOG.start),
        (3 * SEGMENT + 17, 3 * SEGMENT + 17),  # in the middle of a record
        (LOG.stop, LOG.stop),
    ],
)
def test_the_first_report_sets_the_start_offset(first: int, begins: int) -> None:
    master = MasterSide(SEGMENT)
    assert master.next_transfer(LOG) is None
    assert master.serialize_heartbeat() == b""
    master.receive_reports(report(first), LOG)
    assert master.next_offset == begins
    assert master.acknowledged == first
    assert master.serialize_heartbeat() == transfer(begins, b"")


def test_an_empty_slave_of_an_empty_master_begins_at_the_start() -> None:
    master = MasterSide(SEGMENT)
    master.receive_reports(report(0), range(0))
    assert master.next_transfer(range(0)) is None
    assert master.next_transfer(range(10)) == (0, 10)


def test_copying_a_log_that_ends_with_a_segment_starts_after_it() -> None:
    master = MasterSide(SEGMENT)
    master.receive_reports(report(0), range(2 * SEGMENT))
    assert master.next_offset == 2 * SEGMENT
    assert master.next_transfer(range(2 * SEGMENT)) is None


def test_transfers_end_at_the_batch_size_the_segment_or_the_log() -> None:
    master = MasterSide(SEGMENT, batch_bytes=3000)
    master.receive_reports(report(3 * SEGMENT), LOG)
    sizes = []
    while (due := master.next_transfer(LOG)) is not None:
        offset, size = due
        sizes.append(size)
        assert master.serialize_transfer(b"x" * size) == transfer(offset, b"x" * size)
    assert sizes == [3000, SEGMENT - 3000, 100]
    assert master.next_offset == LOG.stop


@pytest.mark.parametrize("first", [-1, 1, LOG.start - 1, LOG.stop + 1, (1 << 63) - 1])
def test_a_first_report_outside_the_log_is_refused(first: int) -> None:
    with pytest.raises(PeerError, match=f"found {first}"):
        MasterSide(SEGMENT).receive_reports(report(first), LOG)


@pytest.mark.parametrize("lie", [-1, LOG.start, LOG.stop + 1])
def test_an_acknowledgement_of_unsent_bytes_is_refused(lie: int) -> None:
    master = MasterSide(SEGMENT)
    master.receive_reports(report(LOG.start + 50), LOG)
    master.serialize_transfer(b"x" * 10)
    master.receive_reports(report(LOG.start + 60), LOG)
    assert master.acknowledged == LOG.start + 60
    with pytest.raises(
        PeerError, match=f"expected a physical offset from {LOG.start + 60} to {LOG.start + 60}, found {lie}"
    ):
        master.receive_reports(report(lie), LOG)


def test_a_slave_that_is_too_slow_receives_an_error() -> None:
    master = MasterSide(SEGMENT)
    master.receive_reports(report(LOG.start), LOG)
    with pytest.raises(PeerError, match=f"the master's log begins at {3 * SEGMENT}: the slave was too slow"):
        master.next_transfer(range(3 * SEGMENT, LOG.stop))


def test_reports_are_read_from_pieces_of_any_size() -> None:
    stream = report(0) + report(0) + report(4 * SEGMENT)
    for cut in range(len(stream) + 1):
        master = MasterSide(SEGMENT)
        master.receive_reports(stream[:cut], LOG)
        assert master.acknowledged == {0: None, 3: 4 * SEGMENT}.get(cut // REPORT.size, 0)
        master.receive_reports(stream[cut:], LOG)
        assert master.acknowledged == master.next_offset == 4 * SEGMENT


def test_transfers_are_read_from_pieces_of_any_size() -> None:
    stream = (
        transfer(SEGMENT, b"")  # a sign of life
        + transfer(SEGMENT, b"abc" * 10)
        + transfer(SEGMENT + 30, b"d")
        + transfer(SEGMENT + 31, b"")
    )
    for cut in range(len(stream) + 1):
        slave = SlaveSide(SEGMENT, SEGMENT)
        found = slave.receive_log(stream[:cut]) + slave.receive_log(stream[cut:])
        assert b"".join(chunk.data for chunk in found) == b"abc" * 10 + b"d"
        offset = SEGMENT
        for chunk in found:
            assert chunk.physical_offset == offset
            offset += len(chunk.data)
        assert slave.serialize_report() == report(SEGMENT + 31)


def test_an_empty_slave_begins_with_the_first_segment_it_receives() -> None:
    slave = SlaveSide(SEGMENT, None)
    assert slave.serialize_report() == report(0)
    # Before the first bytes, a master may announce the start offset.
    assert slave.receive_log(transfer(5 * SEGMENT, b"")) == []
    assert slave.serialize_report() == report(0)
    assert slave.receive_log(transfer(3 * SEGMENT, b"xy")) == [LogChunk(3 * SEGMENT, b"xy")]
    assert slave.serialize_report() == report(3 * SEGMENT + 2)


@pytest.mark.parametrize("offset", [0, 99, 101, -100, (1 << 63) - 1, -(1 << 63)])
@pytest.mark.parametrize("body", [b"", b"x"])
def test_a_transfer_at_another_offset_is_refused(offset: int, body: bytes) -> None:
    with pytest.raises(PeerError, match=f"physical offset {offset}, expected 100, where this log ends"):
        SlaveSide(SEGMENT, 100).receive_log(transfer(offset, body))


@pytest.mark.parametrize("size", [-1, -(1 << 31), MAX_BODY_BYTES + 1, (1 << 31) - 1])
def test_a_size_that_no_master_sends_is_refused_before_the_body(size: int) -> None:
    slave = SlaveSide(1 << 30, 0)
    with pytest.raises(
        PeerError, match=f"body_size: expected 0 to {MAX_BODY_BYTES} bytes in a frame of the master, found {size}"
    ):
        slave.receive_log(transfer(0, b"", size))


def test_a_body_beyond_the_end_of_its_segment_is_refused() -> None:
    slave = SlaveSide(SEGMENT, SEGMENT - 10)
    with pytest.raises(PeerError, match="expected at most 10 bytes, the rest of a segment"):
        slave.receive_log(transfer(SEGMENT - 10, b"x" * 11))
    assert SlaveSide(SEGMENT, SEGMENT - 10).receive_log(transfer(SEGMENT - 10, b"x" * 10))


@pytest.mark.parametrize("offset", [-SEGMENT, 100, SEGMENT + 1])
def test_an_empty_slave_refuses_an_offset_inside_a_segment(offset: int) -> None:
    with pytest.raises(PeerError, match="expected the start of a segment"):
        SlaveSide(SEGMENT, None).receive_log(transfer(offset, b"x"))


def test_any_bytes_give_consecutive_chunks_or_an_error() -> None:
    moment = random.Random(7)
    for _ in range(3000):
        slave = SlaveSide(SEGMENT, SEGMENT)
        data = bytearray(transfer(SEGMENT, moment.randbytes(20)) + transfer(SEGMENT + 20, moment.randbytes(5)))
        data[moment.randrange(len(data))] ^= 1 << moment.randrange(8)
        expected = SEGMENT
        try:
            for chunk in slave.receive_log(bytes(data)):
                assert chunk.physical_offset == expected
                expected += len(chunk.data)
        except PeerError:
            continue
        assert len(slave._header) < TRANSFER.size


def test_a_slave_accepts_everything_that_a_master_sends() -> None:
    moment = random.Random(3)
    log = moment.randbytes(2 * SEGMENT + 1000)
    master, slave = MasterSide(SEGMENT, batch_bytes=700), SlaveSide(SEGMENT, 123)
    copied = bytearray(log[:123])
    master.receive_reports(slave.serialize_report(), range(len(log)))
    while (due := master.next_transfer(range(len(log)))) is not None:
        offset, size = due
        for chunk in slave.receive_log(master.serialize_transfer(log[offset : offset + size])):
            assert chunk.physical_offset == len(copied)
            copied += chunk.data
        master.receive_reports(slave.serialize_report(), range(len(log)))
        assert master.acknowledged == len(copied)
    assert bytes(copied) == log
