"""How a log is copied over a connection: the slave says how far it is, the master sends what follows.

    slave to master     max_physical_offset int64                          a report
    master to slave     physical_offset int64, body_size int32, body       a transfer

The first report tells where to begin: at that offset, or, where it is 0, at the first byte of the master's last
segment. Later ones acknowledge what has come; a report every few seconds is a sign of life, as is a transfer without a
body. A body is a stretch of one segment, cut anywhere, also within a record. Bodies follow one another without a gap.

RocketMQ's master takes the last report of what one read has brought, and any number in it; its slave appends what comes
first wherever it is said to stand. Both are checked here. Source: DefaultHAConnection, DefaultHAClient (5.5.0),
HAConnection, HAService.HAClient (4.9.7), which are the same on the wire.
"""

from __future__ import annotations

from typing import NamedTuple

from commitlake.broker_lite.replication.errors import PeerError
from commitlake.schemas.layouts.base import Field, Layout

REPORT = Layout(Field("max_physical_offset", "q", "physical offset behind the last byte that the slave has"))
TRANSFER = Layout(
    Field("physical_offset", "q", "of the body's first byte"),
    Field("body_size", "i", "bytes that follow; 0 for a sign of life"),
)
assert (REPORT.size, TRANSFER.size) == (8, 12)

DEFAULT_BATCH_BYTES = 32 << 10
"""RocketMQ's haTransferBatchSize."""
MAX_BODY_BYTES = (4 << 20) - TRANSFER.size
"""A RocketMQ slave has a buffer of 4 MiB, and never gets on with a transfer that does not fit into it."""


class Stretch(NamedTuple):
    """Bytes of a log."""

    physical_offset: int
    data: bytes


class MasterSide:
    """One slave, as its master sees it.

    Attributes:
        acknowledged: how far the slave is; None until it has said where to begin.
        next_offset: the next byte to send.
    """

    def __init__(self, segment_size: int, batch_bytes: int = DEFAULT_BATCH_BYTES) -> None:
        """Wait for the first report.

        Args:
            segment_size: of the log's files.
            batch_bytes: the largest body.
        """
        self.acknowledged: int | None = None
        self.next_offset = 0
        self._segment_size = segment_size
        self._batch_bytes = min(batch_bytes, MAX_BODY_BYTES)
        self._rest = b""

    def receive(self, data: bytes, log: range) -> None:
        """Take reports.

        Args:
            data: what has come.
            log: the physical offsets that the log has now.

        Raises:
            PeerError: if the slave says that it has what it cannot have.
        """
        data = self._rest + data
        whole = len(data) - len(data) % REPORT.size
        for (offset,) in REPORT.struct.iter_unpack(data[:whole]):
            if self.acknowledged is None:
                self._begin(offset, log)
            elif not self.acknowledged <= offset <= self.next_offset:
                raise PeerError(
                    f"report: expected an offset from {self.acknowledged} to {self.next_offset}, found {offset}"
                )
            self.acknowledged = offset
        self._rest = data[whole:]

    def _begin(self, offset: int, log: range) -> None:
        if offset == 0:
            self.next_offset = max(log.start, log.stop - log.stop % self._segment_size)
        elif log.start <= offset <= log.stop:
            self.next_offset = offset
        else:
            raise PeerError(
                f"first report: expected 0 or an offset of the log, {log.start} to {log.stop}, found {offset}; a slave "
                "that is further than its master, or too far behind, has to begin with an empty store"
            )

    def due(self, log: range) -> tuple[int, int] | None:
        """Offset and size of the next body; None where the slave has all, or has not said where to begin.

        Raises:
            PeerError: if the slave is so slow that what it needs was deleted.
        """
        if self.acknowledged is None or self.next_offset == log.stop:
            return None
        if self.next_offset < log.start:
            raise PeerError(f"expected a slave that has read up to {log.start}, found it at {self.next_offset}")
        in_segment = self._segment_size - self.next_offset % self._segment_size
        return self.next_offset, min(self._batch_bytes, in_segment, log.stop - self.next_offset)

    def transfer(self, body: bytes) -> bytes:
        """The bytes that send the next body."""
        header = TRANSFER.pack(self.next_offset, len(body))
        self.next_offset += len(body)
        return header + body

    def sign_of_life(self) -> bytes:
        """A transfer without a body; nothing before the slave has said where to begin."""
        return b"" if self.acknowledged is None else TRANSFER.pack(self.next_offset, 0)


class SlaveSide:
    """The master, as a slave sees it.

    Bodies are handed on as they come: nothing is kept but the part of a header that is here.
    """

    def __init__(self, segment_size: int, log_end: int | None) -> None:
        """Begin where the slave is.

        Args:
            segment_size: of the slave's files, and the master's.
            log_end: physical offset behind the last byte that the slave has; None for an empty store.
        """
        self._segment_size = segment_size
        self._expected = log_end
        self._left = 0
        self._header = b""

    def report(self) -> bytes:
        """The bytes that tell the master how far the slave is; whatever was received must be in its log by then."""
        return REPORT.pack(self._expected or 0)

    def receive(self, data: bytes) -> list[Stretch]:
        """Take what has come; gives the bytes of the log in it.

        Raises:
            PeerError: if it is not what follows; what came before it in `data` is lost, and sent again another time.
        """
        found: list[Stretch] = []
        position = 0
        while position < len(data):
            if self._left:
                part = data[position : position + self._left]
                assert self._expected is not None
                found.append(Stretch(self._expected, part))
                self._expected += len(part)
                self._left -= len(part)
                position += len(part)
                continue
            part = data[position : position + TRANSFER.size - len(self._header)]
            position += len(part)
            self._header += part
            if len(self._header) == TRANSFER.size:
                self._open(*TRANSFER.unpack(self._header))
                self._header = b""
        return found

    def _open(self, offset: int, size: int) -> None:
        if not 0 <= size <= MAX_BODY_BYTES:
            raise PeerError(f"body_size: expected 0 to {MAX_BODY_BYTES}, found {size}")
        if self._expected is not None and offset != self._expected:
            raise PeerError(f"physical_offset: expected {self._expected}, where this log ends, found {offset}")
        if not size:
            return
        if self._expected is None:
            if offset < 0 or offset % self._segment_size:
                raise PeerError(
                    f"physical_offset: expected the start of a segment of {self._segment_size} bytes, found {offset}; "
                    "open the slave's store with the master's file sizes"
                )
            self._expected = offset
        if size > (room := self._segment_size - offset % self._segment_size):
            raise PeerError(
                f"body_size: expected at most {room}, the rest of a segment of {self._segment_size} bytes, found {size}"
            )
        self._left = size
