"""Wire protocol of replication: the slave reports its offset, and the master sends the bytes from there on.

    slave to master     max_physical_offset int64                          a report
    master to slave     physical_offset int64, body_size int32, body       a transfer

The first report says where to start: at that offset or, if it is 0, at the first byte of the master's last segment.
Later reports acknowledge what has arrived; a report every few seconds serves as a heartbeat, as does a transfer without
a body. A body is part of one segment, cut anywhere, even within a record. Bodies follow one another without gaps.

RocketMQ's master uses only the last report of each read, and accepts any number in it; its slave appends the first body
at whatever offset it names. Both are checked here. Source: DefaultHAConnection, DefaultHAClient (5.5.0), HAConnection,
HAService.HAClient (4.9.7); both versions have the same protocol.
"""

from __future__ import annotations

from typing import NamedTuple

from commitlake.broker_lite.errors import PeerError
from commitlake.schemas.layouts.base import Field, Layout

REPORT = Layout(Field("max_physical_offset", "q", "physical offset of the end of the slave's log"))
TRANSFER = Layout(
    Field("physical_offset", "q", "physical offset of the body's first byte"),
    Field("body_size", "i", "number of bytes that follow; 0 for a heartbeat"),
)
assert (REPORT.size, TRANSFER.size) == (8, 12)

DEFAULT_BATCH_BYTES = 32 << 10
"""RocketMQ's haTransferBatchSize."""
MAX_BODY_BYTES = (4 << 20) - TRANSFER.size
"""A RocketMQ slave has a buffer of 4 MiB; a larger transfer would block it forever."""


class LogChunk(NamedTuple):
    """Consecutive bytes of a log, with the physical offset of the first one."""

    physical_offset: int
    data: bytes


class MasterSide:
    """Protocol state of a master for one slave.

    Attributes:
        acknowledged: offset that the slave has reported; None before its first report.
        next_offset: offset of the next byte to send.
    """

    def __init__(self, segment_size: int, batch_bytes: int = DEFAULT_BATCH_BYTES) -> None:
        """Create the state before the slave's first report.

        Args:
            segment_size: size of the log's files.
            batch_bytes: maximum size of a body.
        """
        self.acknowledged: int | None = None
        self.next_offset = 0
        self._segment_size = segment_size
        self._batch_bytes = min(batch_bytes, MAX_BODY_BYTES)
        self._rest = b""

    def receive_reports(self, data: bytes, log_range: range) -> None:
        """Parse received offset reports of the slave.

        Args:
            data: received bytes.
            log_range: physical offsets of the current log.

        Raises:
            PeerError: if the slave reports an impossible offset.
        """
        data = self._rest + data
        whole = len(data) - len(data) % REPORT.size
        for (offset,) in REPORT.struct.iter_unpack(data[:whole]):
            if self.acknowledged is None:
                self._accept_first_report(offset, log_range)
            elif not self.acknowledged <= offset <= self.next_offset:
                raise PeerError(
                    f"the slave's report: expected a physical offset from {self.acknowledged} to {self.next_offset}, "
                    f"found {offset}"
                )
            self.acknowledged = offset
        self._rest = data[whole:]

    def _accept_first_report(self, offset: int, log_range: range) -> None:
        if offset == 0:
            self.next_offset = max(log_range.start, log_range.stop - log_range.stop % self._segment_size)
        elif log_range.start <= offset <= log_range.stop:
            self.next_offset = offset
        else:
            raise PeerError(
                f"the slave's first report: expected 0, or a physical offset from {log_range.start} to "
                f"{log_range.stop}, the range of this log, found {offset}; a slave that is ahead of its master, or too "
                "far behind, must start with an empty store"
            )

    def next_transfer(self, log_range: range) -> tuple[int, int] | None:
        """Return offset and size of the next bytes to send; None if there are none, or before the slave's first report.

        Raises:
            PeerError: if the slave is so slow that the bytes it needs were deleted.
        """
        if self.acknowledged is None or self.next_offset == log_range.stop:
            return None
        if self.next_offset < log_range.start:
            raise PeerError(
                f"the slave continues at physical offset {self.next_offset}, but the master's log begins at "
                f"{log_range.start}: the slave was too slow, and must start with an empty store"
            )
        in_segment = self._segment_size - self.next_offset % self._segment_size
        return self.next_offset, min(self._batch_bytes, in_segment, log_range.stop - self.next_offset)

    def serialize_transfer(self, body: bytes) -> bytes:
        """Return the bytes that send a part of the log to the slave: a header and the given bytes."""
        header = TRANSFER.pack(self.next_offset, len(body))
        self.next_offset += len(body)
        return header + body

    def serialize_heartbeat(self) -> bytes:
        """Return a transfer without a body, or nothing before the slave's first report."""
        return b"" if self.acknowledged is None else TRANSFER.pack(self.next_offset, 0)


class SlaveSide:
    """Protocol state of a slave.

    Bodies are returned as they arrive; only an incomplete header is buffered.
    """

    def __init__(self, segment_size: int, log_end: int | None) -> None:
        """Create the state for a slave whose log ends at an offset.

        Args:
            segment_size: size of the slave's files, and the master's.
            log_end: physical offset of the end of the slave's log; None for an empty store.
        """
        self._segment_size = segment_size
        self._expected = log_end
        self._left = 0
        self._header = b""

    def serialize_report(self) -> bytes:
        """Return a report of the offset received so far; the caller must have written the log up to it."""
        return REPORT.pack(self._expected or 0)

    def receive_log(self, data: bytes) -> list[LogChunk]:
        """Parse received bytes, and return the bytes of the log in them.

        Raises:
            PeerError: if the bytes are not valid; valid bytes before them in `data` are dropped, and sent again later.
        """
        found: list[LogChunk] = []
        position = 0
        while position < len(data):
            if self._left:
                part = data[position : position + self._left]
                assert self._expected is not None
                found.append(LogChunk(self._expected, part))
                self._expected += len(part)
                self._left -= len(part)
                position += len(part)
                continue
            part = data[position : position + TRANSFER.size - len(self._header)]
            position += len(part)
            self._header += part
            if len(self._header) == TRANSFER.size:
                self._begin_body(*TRANSFER.unpack(self._header))
                self._header = b""
        return found

    def _begin_body(self, offset: int, size: int) -> None:
        if not 0 <= size <= MAX_BODY_BYTES:
            raise PeerError(f"body_size: expected 0 to {MAX_BODY_BYTES} bytes in a frame of the master, found {size}")
        if self._expected is not None and offset != self._expected:
            raise PeerError(
                f"the master sent bytes of physical offset {offset}, expected {self._expected}, where this log ends"
            )
        if not size:
            return
        if self._expected is None:
            if offset < 0 or offset % self._segment_size:
                raise PeerError(
                    f"the master sent bytes of physical offset {offset}, expected the start of a segment of "
                    f"{self._segment_size} bytes: open the slave's store with the master's file sizes"
                )
            self._expected = offset
        if size > (room := self._segment_size - offset % self._segment_size):
            raise PeerError(
                f"body_size: expected at most {room} bytes, the rest of a segment of {self._segment_size} bytes, found "
                f"{size}"
            )
        self._left = size
