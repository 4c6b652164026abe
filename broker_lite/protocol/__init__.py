"""The server's side of the remoting protocol: bytes in, commands out, bytes to send. No sockets, clocks or tasks."""

from broker_lite.protocol.channel import Channel
from broker_lite.protocol.frames import FrameReader

__all__ = ["Channel", "FrameReader"]
