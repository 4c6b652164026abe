"""What all handlers are."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.remoting.frames import Command

Answering = Generator[None, None, Command | None]
"""A handler whose work may take long: it yields between steps of at most a few milliseconds, see `Slices`."""

Handler = Callable[[Broker, Channel, Command], Command | Answering | None]
"""Gives the answer; None where there is none, or where it comes later by the channel.

Raises what schemas.remoting.errors and broker_lite.stores.engine.errors hold: the caller makes answers of them.
"""

Handlers = Mapping[int, Handler]
"""By request code."""
