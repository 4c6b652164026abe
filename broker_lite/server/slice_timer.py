"""Timer that runs the slices of long requests on an event loop, between the turns of its connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from commitlake.broker_lite.broker.slices import Slices


class SliceTimer:
    """Timer of one scheduler, which starts when work waits and stops when there is none."""

    def __init__(self, loop: asyncio.AbstractEventLoop, slices: Slices, turn: Callable[[], bool]) -> None:
        """Connect a scheduler to an event loop.

        Args:
            slices: the scheduler.
            turn: function that runs one slice, and returns whether more work remains; it raises no exception.
        """
        self._loop = loop
        self._slices = slices
        self._turn = turn
        self._next: asyncio.Handle | None = None
        slices.wake = self._start

    def _start(self) -> None:
        delay = self._slices.delay
        if self._next is not None:
            if delay or not isinstance(self._next, asyncio.TimerHandle):
                return
            self._next.cancel()  # new work need not wait for the end of a pause
        self._next = self._loop.call_later(delay, self._run) if delay else self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._next = None
        if self._turn():
            self._start()
