"""The server's side of the remoting protocol: bytes in, commands out, bytes to send. No sockets, clocks or tasks."""

from commitlake.broker_lite.protocol.channel import Channel
from commitlake.broker_lite.protocol.frames import FrameReader

__all__ = ["Channel", "FrameReader"]
