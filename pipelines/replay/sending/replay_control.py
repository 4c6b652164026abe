"""Control of a running replay: requests for another rate or a stop, and pauses while a group is behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from deltalake.exceptions import DeltaError

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.rocketmq import Admin, RocketMQError
from commitlake.pipelines.replay.errors import OtherProcessError
from commitlake.pipelines.replay.ledger import read_replay_state
from commitlake.pipelines.replay.sending.rate_limit import SendPace
from commitlake.schemas.errors import CommitLakeError
from commitlake.schemas.formatted_counts import format_count

_LOOK_SECONDS = 2.0


@contextmanager
def watch_replay(
    lake: Lake,
    replay_id: str,
    pace: SendPace,
    admin: Admin,
    lag_limit: tuple[str, int] | None,
    notify: Callable[[str], None] = lambda _: None,
    check_owner: Callable[[], object] = lambda: None,
) -> Iterator[None]:
    """Context manager that applies requests to stop or change the rate, and pauses while a group's lag is too large.

    Args:
        pace: pace of the replay.
        admin: client of the target.
        lag_limit: a group, and the largest lag that it may have, in messages; None for no limit.
        notify: receives a sentence for each change.
        check_owner: raises `OtherProcessError` if another process has taken over the work, which also stops the pace.
    """
    lag = None if lag_limit is None else _LagWatch(pace, admin, lag_limit, notify)
    if lag is not None:
        lag.pause_or_resume_replay()  # before the first message is sent
    look = partial(_apply_requests, lake, replay_id, pace, lag, notify, check_owner)
    with run_beside("replay-watch", look):
        yield


@contextmanager
def run_beside(name: str, function: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run a function in a thread while the block runs; it must return soon after the event that it is given is set."""
    end = threading.Event()
    thread = threading.Thread(target=function, args=(end,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def _apply_requests(
    lake: Lake,
    replay_id: str,
    pace: SendPace,
    lag_watch: _LagWatch | None,
    notify: Callable[[str], None],
    check_owner: Callable[[], object],
    stop_event: threading.Event,
) -> None:
    rate, speed = pace.total_rate, pace.speed
    trouble = ""
    while not stop_event.wait(_LOOK_SECONDS):
        try:
            state = read_replay_state(lake, replay_id)
            check_owner()
        except OtherProcessError:
            pace.stop()
            return
        except (CommitLakeError, DeltaError, OSError) as error:
            # The thread continues, because without it a paused replay could neither be continued nor be stopped.
            if str(error) != trouble:
                notify(f"the ledger cannot be read, so requests to stop are not seen: {error}")
            trouble = str(error)
        else:
            trouble = ""
            if state.wants_stop:
                notify("a stop was requested: the messages under way are finished")
                pace.stop()
                return
            if state.rate is not None and state.rate != rate:
                rate = state.rate
                pace.set_rate(rate)
                notify(f"the rate is now {rate:g} messages/s" if rate else "the rate is no longer limited")
            if state.speed is not None and state.speed != speed:
                speed = state.speed
                pace.set_speed(speed)
                notify(f"the speed is now {speed:g} times the pace at which the messages were stored" if speed else
                     "the pace at which the messages were stored is no longer kept")  # fmt: skip
        if lag_watch is not None:
            lag_watch.pause_or_resume_replay()


class _LagWatch:
    """Monitor that pauses a replay while a group's lag exceeds a limit."""

    def __init__(self, pace: SendPace, admin: Admin, limit: tuple[str, int], tell: Callable[[str], None]) -> None:
        self._pace, self._admin, self._tell = pace, admin, tell
        self._group, self._limit = limit
        self._is_paused = False
        self._is_unknown = False

    def pause_or_resume_replay(self) -> None:
        """Pause the replay if the group's lag is above the limit, or continue it when it is no longer."""
        trouble = ""
        try:
            stats = self._admin.consume_stats(self._group)
        except RocketMQError as error:
            # An unknown lag counts as too large: a pause does no harm.
            is_behind, trouble = True, str(error)
        else:
            if not stats and not self._is_unknown:
                self._is_unknown = True
                self._tell(
                    f"the target has no offsets of the group {self._group}: sending does not pause until it has some"
                )
            is_behind = sum(max(0, each.broker_offset - each.consumer_offset) for each in stats.values()) > self._limit
        if is_behind == self._is_paused:
            return
        self._is_paused = is_behind
        self._pace.set_paused(is_paused=is_behind)
        if trouble:
            self._tell(f"paused: the lag of {self._group} is not known: {trouble}")
        else:
            self._tell(
                f"{'paused' if is_behind else 'continued'}: {self._group} has {'more' if is_behind else 'no more'} "
                f"than {format_count(self._limit, 'message')} to consume"
            )
