"""Reading ahead of a caller that reads a remote segment in order.

An object store needs tens of milliseconds for the first byte of an answer, and one connection has a part of a network's
bandwidth only. So while the kernel works on one window, the bytes of the next ones are requested, several ranges at a
time. A first read gets just what it needs, and the next ones up to three times what was read before: many callers
search for one record, and then stop.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from commitlake.connectors.formats.engine.files import SegmentFile, Window

RANGE_BYTES = 8 << 20
"""Number of bytes of a request; object stores recommend 8 to 16 MiB."""
MAX_RANGES_AHEAD = 3


@dataclass(frozen=True, slots=True)
class _Range:
    """Requested range of the file.

    Attributes:
        start: position of its first byte.
        end: position after its last byte.
        data: its bytes, fewer if the file ends in it.
    """

    start: int
    end: int
    data: Future[Window]


class ReadAhead:
    """Reader of one file.

    Each request has a thread of its own, which ends with the request: nothing waits for what is not needed any more.

    Args:
        file: the open file, which several threads can read.
    """

    def __init__(self, file: SegmentFile) -> None:
        self._file = file
        self._ranges: deque[_Range] = deque()
        self._begin = self._end = -1  # position of the first byte that was read in order, and after the last range

    def read_into(self, window: Window, position: int, limit: int) -> int:
        """Fill `window` from a position of the file; return the bytes read, fewer only at the end of the file.

        Args:
            window: receives the bytes.
            position: position of its first byte.
            limit: position before which all following reads will end.
        """
        while self._ranges and self._ranges[0].end <= position:
            self._ranges.popleft()
        if position != self._end and not (self._ranges and self._ranges[0].start <= position):
            self._ranges.clear()
            self._begin = self._end = position
        needed, read = position + len(window), position - self._begin
        if read:
            size = min(RANGE_BYTES, max(read, len(window)))
            stop = max(limit, needed)
            wanted = min(stop, needed + MAX_RANGES_AHEAD * size)
        else:
            size, stop, wanted = RANGE_BYTES, needed, needed
        while self._end < wanted:
            self._request(min(self._end + size, stop))
        return self._copy(window, position)

    def _request(self, end: int) -> None:
        start, data = self._end, Future[Window]()

        def read() -> None:
            try:
                buffer = np.empty(end - start, np.uint8)
                data.set_result(buffer[: self._file.read_into(buffer, start)])
            except BaseException as error:  # noqa: BLE001 (the reader of the range raises it)
                data.set_exception(error)

        threading.Thread(target=read, name="read-ahead", daemon=True).start()
        self._ranges.append(_Range(start, end, data))
        self._end = end

    def _copy(self, window: Window, position: int) -> int:
        done = 0
        for part in self._ranges:
            if done == len(window):
                break
            data = part.data.result()
            found = data[position + done - part.start :][: len(window) - done]
            window[done : done + len(found)] = found
            done += len(found)
            if len(data) < part.end - part.start:
                break
        return done
