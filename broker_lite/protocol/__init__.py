"""Server side of the remoting protocol: received bytes to commands, commands to bytes. No sockets, clocks or tasks."""

from commitlake.broker_lite.protocol.channel import Channel, FrameReader

__all__ = ["Channel", "FrameReader"]
