"""Network server of the broker: asyncio listeners, timers and orderly shutdown."""

from commitlake.broker_lite.server.broker_server import Address, ListenError, ServerOptions, run_server

__all__ = ["Address", "ListenError", "ServerOptions", "run_server"]
