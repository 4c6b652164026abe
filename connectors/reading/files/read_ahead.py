"""Read-ahead for a caller that reads a remote segment in order.

An object store needs tens of milliseconds for the first byte of an answer, and one connection has only a part of a
network's bandwidth. So while the kernel works on one window, the bytes of the next ones are requested, several ranges
at a time. The first read is one request for just the bytes it needs, and each later range is at most as large as
everything read before, because many callers search for one record and then stop.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

from commitlake.connectors.reading.files.segment_files import RemoteSegment, Window

RANGE_BYTES = 8 << 20
"""Number of bytes of a request; object stores recommend 8 to 16 MiB."""
MAX_RANGES_AHEAD = 3
"""Number of ranges that are requested after the one that is needed."""


@dataclass(frozen=True, slots=True)
class _RequestedRange:
    """Range of a file that has been requested.

    Attributes:
        start: position of its first byte.
        end: position after its last byte.
        data: its bytes, fewer if the file ends in it.
    """

    start: int
    end: int
    data: Future[Window]


class ReadAhead:
    """Reader of one remote file that reads ahead; it holds at most `MAX_RANGES_AHEAD` + 2 ranges in memory.

    Each request has its own thread, which ends with the request: nothing waits for a range that is no longer needed,
    but its bytes stay in memory until then.

    Args:
        file: the open file.
    """

    def __init__(self, file: RemoteSegment) -> None:
        self._file = file
        self._ranges: deque[_RequestedRange] = deque()
        self._begin = self._end = -1  # positions of the first byte that was read in order, and after the last one

    def read_into(self, window: Window, position: int, read_end: int) -> int:
        """Fill `window` from a position of the file; return the bytes read, fewer only at the end of the file.

        Args:
            window: receives the bytes.
            position: position of its first byte.
            read_end: position before which most of the following reads will end.
        """
        while self._ranges and self._ranges[0].end <= position:
            self._ranges.popleft()
        # Not the continuation of an earlier read: a look-up, most probably, for which nothing should be read ahead.
        if not self._begin < position <= self._end:
            self._ranges.clear()
            self._begin, self._end = position, position + len(window)
            return self._file.read_into(window, position)
        if not self._ranges:
            self._end = position
        # A large read may need bytes that are no longer in memory.
        gap = max(0, min(len(window), self._ranges[0].start - position)) if self._ranges else 0
        done = self._file.read_into(window[:gap], position) if gap else 0
        if done < gap:
            return done
        # At most as much as was read in order so far: a caller that stops early has then fetched twice its need at
        # most.
        size = min(RANGE_BYTES, max(position - self._begin, len(window)))
        stop = max(read_end, position + len(window))
        self._request_ranges(position + done, size, stop)
        while done < len(window):
            at = position + done
            part = next(each for each in self._ranges if each.end > at)
            data = part.data.result()
            found = data[at - part.start :][: len(window) - done]
            window[done : done + len(found)] = found
            done += len(found)
            if part.start + len(data) <= position + done < part.end:
                break  # the file ends here, or before
            while len(self._ranges) > 1 and self._ranges[1].end <= position + done:
                self._ranges.popleft()  # the next read may begin in the last range, or more rarely before it
            self._request_ranges(position + done, size, stop)
        return done

    def _request_ranges(self, position: int, size: int, end: int) -> None:
        """Request ranges of the file in advance, up to `end` or the maximum number."""
        count = sum(part.end > position for part in self._ranges)
        while self._end < end and count <= MAX_RANGES_AHEAD:
            part = _RequestedRange(self._end, min(self._end + size, end), Future())
            # A thread of its own, not a pool: a pool would wait at exit for answers that nobody needs any more.
            threading.Thread(target=_read_range, args=(self._file, part), name="read-ahead", daemon=True).start()
            self._ranges.append(part)
            self._end, count = part.end, count + 1


def _read_range(file: RemoteSegment, requested_range: _RequestedRange) -> None:
    try:
        requested_range.data.set_result(
            file.read_at(requested_range.end - requested_range.start, requested_range.start)
        )
    except BaseException as error:  # noqa: BLE001 (raised where the bytes are needed)
        requested_range.data.set_exception(error)
    finally:
        del requested_range  # else an error, whose traceback has this frame, would keep itself in memory
