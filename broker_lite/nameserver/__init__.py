"""Name server: registered brokers and the routes of their topics. No sockets, clocks or tasks."""

from commitlake.broker_lite.nameserver.handlers import NameServer
from commitlake.broker_lite.nameserver.routes import RouteTable

__all__ = ["NameServer", "RouteTable"]
