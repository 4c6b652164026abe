"""Types that all request handlers share."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.remoting.frames import Command

Answering = Generator[None, None, Command | None]
"""Handler of a long request: a generator that yields between steps of at most a few milliseconds, see `Slices`."""

Handler = Callable[[Broker, Channel, Command], Command | Answering | None]
"""Function that returns the answer; None if there is no answer, or if it is sent later.

It raises errors of schemas.remoting.errors and broker_lite.errors, which the caller converts to answers.
"""

Handlers = Mapping[int, Handler]
"""Handlers by request code."""
