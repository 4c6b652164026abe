"""The network's side of the broker: asyncio listeners, timers, and an orderly end."""

from commitlake.broker_lite.server.service import Address, ListenError, ServerOptions, run_server

__all__ = ["Address", "ListenError", "ServerOptions", "run_server"]
