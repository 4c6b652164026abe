"""Incremental parser of commands from a stream of bytes."""

from __future__ import annotations

from commitlake.schemas.remoting.frames import MAX_FRAME_BYTES, Command, parse_command


class FrameReader:
    """Buffer that splits the bytes of one connection into commands.

    It never holds more than one incomplete frame and the last piece received: a frame's length is checked as soon as
    its first four bytes have arrived.
    """

    def __init__(self, limit_bytes: int = MAX_FRAME_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Command]:
        """Add received bytes, and return the commands that are complete.

        Raises:
            LayoutError: if the bytes are not a valid frame; the connection must be closed.
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
        """Size of the incomplete frame in the buffer."""
        return len(self._rest)
