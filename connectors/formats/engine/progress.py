"""Checks of progress: no loop of a reader may run forever, whatever a log contains."""

from __future__ import annotations

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.engine.errors import no_progress
from commitlake.connectors.formats.engine.kernel import hop as kernel


class WalkProgress:
    """Monitor of one walk over a range of a segment."""

    def __init__(self, path: str, base_offset: int) -> None:
        self._path = path
        self._base_offset = base_offset
        self._window: tuple[int, ...] = ()

    def check_window(self, *window: int) -> None:
        """Check that a window differs from the previous one.

        Args:
            window: physical offset of its first byte, and the values that determine its length.

        Raises:
            NoProgressError: if it is the same.
        """
        if window == self._window:
            raise no_progress(self._path, self._base_offset, window[0], "a larger window", "the same window again")
        self._window = window

    def check_hop(self, before: Array, state: Array) -> None:
        """Check that a hop that needs more room has made progress.

        Args:
            before: the hop's state before the call.
            state: the hop's state after the call.

        Raises:
            NoProgressError: if it found nothing and is at the same position.
        """
        if (
            state[kernel.STOP] == kernel.STOP_ROOM
            and state[kernel.RECORDS] + state[kernel.FAULTS] == 0
            and state[kernel.POSITION] <= before[kernel.POSITION]
        ):
            at = int(state[kernel.POSITION])
            raise no_progress(self._path, self._base_offset, at, "room for one record", "none in an empty batch")
