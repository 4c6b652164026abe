"""Commands out of a stream of bytes that comes in pieces."""

from __future__ import annotations

from commitlake.schemas.remoting.frames import MAX_FRAME_BYTES, Command, parse_command


class FrameReader:
    """What has arrived on one connection and is not a whole frame yet.

    It never holds more than one frame's bytes and what came in one piece behind it: a frame's length is checked as soon
    as its first four bytes are here.
    """

    def __init__(self, limit_bytes: int = MAX_FRAME_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Command]:
        """Take bytes; gives the commands that are whole now.

        Raises:
            LayoutError: if what has come is no frame: the connection is of no use any more.
        """
        buffer: bytes | bytearray = data
        if self._rest:
            self._rest += data
            buffer = self._rest
        commands = []
        position = 0
        while (parsed := parse_command(buffer, position, self._limit_bytes)) is not None:
            commands.append(parsed[0])
            position += parsed[1]
        if buffer is self._rest:
            del self._rest[:position]
        elif position < len(data):
            self._rest += data[position:] if position else data
        return commands

    @property
    def waiting_bytes(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return len(self._rest)
