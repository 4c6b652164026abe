"""`replays`: the events of each replay, one row per event.

The first row of a replay contains its plan, which never changes. The newest row has its state. Append-only.

    event        when
    planned      the plan is fixed, nothing has been sent yet
    started      a process starts or resumes sending
    throttled    another rate or speed was requested: `rate` or `speed` has it
    stopping     a stop was requested
    stopped      it stopped on request; it can be resumed
    failed       it stopped because of an error; it can be resumed
    finished     all of its messages have an outcome in `replay_messages`
    verified     the target was read back: `detail` has the result
    undone       offsets were set so that groups skip the sent messages: `detail` has them
    copies_dropped
                 its rows in `replay_rows` were deleted: it can no longer be resumed or verified
    rows_lost    a repair of the lake lost some of its rows: 'replay resume' searches the target for sent messages
    withdrawn    another replay of the same messages was planned at the same time; this one sends nothing

Key: (`replay_id`, `at`, `event`).
"""

from __future__ import annotations

from enum import StrEnum

from commitlake.schemas.tables.columns import DOUBLE, INT64, TEXT, TIME, Column, Columns


class ReplayEvent(StrEnum):
    """An event in the life of a replay."""

    PLANNED = "planned"
    STARTED = "started"
    THROTTLED = "throttled"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    FINISHED = "finished"
    VERIFIED = "verified"
    UNDONE = "undone"
    WITHDRAWN = "withdrawn"
    COPIES_DROPPED = "copies_dropped"
    ROWS_LOST = "rows_lost"


ENDED = frozenset({ReplayEvent.FINISHED, ReplayEvent.UNDONE, ReplayEvent.WITHDRAWN})
"""States of a replay that sends nothing any more."""


REPLAYS = Columns(
    [
        Column("replay_id", TEXT, "id of the replay, which each sent message has in the property REPLAY_ID"),
        Column("at", TIME, "time of the event, UTC, by the clock of the host that wrote the row"),
        Column("event", TEXT, "planned, started, throttled, stopping, stopped, failed, finished, verified, "
                                      "undone, withdrawn, copies_dropped or rows_lost"),
        Column("owner", TEXT, "host, process id and start of the process that wrote the row"),
        Column("plan", TEXT, "JSON, in the row 'planned': messages, target, and the target's end offsets"),
        Column("rate", DOUBLE, "in a row 'throttled': messages per second; 0 for no limit"),
        Column("sent", INT64, "number of messages sent so far; null if the event does not include it"),
        Column("failed", INT64, "number of messages that could not be sent so far; null likewise"),
        Column("detail", TEXT, "text for people: the error, or the result"),
        Column("speed", DOUBLE, "in a row 'throttled': factor of the pace at which the messages were stored; 0 "
                                      "for no such limit"),
    ]
)  # fmt: skip
