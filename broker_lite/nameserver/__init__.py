"""A name server: which brokers there are, and which of them has which topic. No sockets, clocks or tasks."""

from commitlake.broker_lite.nameserver.handlers import NameServer
from commitlake.broker_lite.nameserver.routes import RouteTable

__all__ = ["NameServer", "RouteTable"]
