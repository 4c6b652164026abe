"""Tables of replays: `replays` has events, `replay_messages` outcomes, and `replay_rows` changed or copied messages."""

from __future__ import annotations

from enum import StrEnum

from commitlake.schemas.tables.columns import (
    BINARY,
    BOOLEAN,
    DOUBLE,
    INT32,
    INT64,
    TEXT,
    TIME,
    Column,
    Columns,
    ListOf,
    MapOf,
)


class ReplayEvent(StrEnum):
    """Event in the course of a replay, such as its start or its end."""

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
"""The events of each replay, one row per event.

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


class SendOutcome(StrEnum):
    """Outcome of sending one message of a replay."""

    SENT = "sent"
    """The target's broker has confirmed that it is stored."""
    FOUND = "found"
    """It was found in the target after the broker's answer had been lost."""
    NO_BODY = "no_body"
    """It was not sent, because the lake does not have its body, or has a damaged one."""
    NOT_CHANGED = "not_changed"
    """It was not sent, because it could not be masked, or because a function's result is invalid."""
    REFUSED = "refused"
    """The target's broker refuses it on every attempt."""


REPLAY_MESSAGES = Columns(
    [
        Column("replay_id", TEXT, "the replay"),
        Column("part", INT32, "number of the part of the plan that the message is in, from 0"),
        Column("broker", TEXT, "the store that the message was archived from"),
        Column("physical_offset", INT64, "physical offset of the message in that store"),
        Column("msg_id", TEXT, "its offset message id in that store"),
        Column("topic", TEXT, "topic in which it was stored there"),
        Column("queue_id", INT32, "queue in which it was stored"),
        Column("queue_offset", INT64, "its queue offset there"),
        Column("outcome", TEXT, "sent, found, no_body, not_changed or refused"),
        Column("target_topic", TEXT, "topic that it was sent to"),
        Column("target_broker", TEXT, "name of the broker that stored it"),
        Column("target_queue_id", INT32, "queue of the target topic"),
        Column("target_offset", INT64, "its queue offset there; null if it is not there"),
        Column("attempts", INT32, "number of attempts; 0 if it was found or never sent"),
        Column("sent_at", TIME, "time at which the outcome was known"),
        Column("error", TEXT, "reason why it was not sent; null if it was sent"),
    ]
)
"""The outcome of each message of a replay, one row per message.

Rows are added in batches while the replay runs, and each row only once. A row says that the message is in the target,
or that it can never be sent. A message without a row may also be in the target, if the process ended before it wrote
the row; when the replay is resumed, it searches the target for such messages.

Key: (`replay_id`, `broker`, `physical_offset`).
"""


IDENTITY = (
    "broker", "physical_offset", "msg_id", "topic", "queue_id", "queue_offset", "store_timestamp", "born_timestamp",
    "size", "sys_flag", "origin_topic",
)  # fmt: skip
"""The columns that identify a message: no function may change them."""

_MESSAGE = [
    Column("broker", TEXT, "the store's name; with physical_offset the message's key"),
    Column("physical_offset", INT64, "position of the record in the log, bytes"),
    Column("msg_id", TEXT, "offset message id"),
    Column("topic", TEXT, "topic in which it was stored"),
    Column("queue_id", INT32, "queue in which it was stored"),
    Column("queue_offset", INT64, "its queue offset there"),
    Column(
        "store_timestamp",
        TIME,
        "time at which the broker stored the message, by its clock, UTC, millisecond precision",
    ),
    Column("born_timestamp", TIME, "time at which the producer made the message, by its clock, UTC"),
    Column("size", INT32, "size of the stored record, bytes"),
    Column("sys_flag", INT32, "flag bits: compression of the body as it is sent"),
    Column("origin_topic", TEXT, "original topic of a retry or a dead letter"),
    Column("flag", INT32, "flag set by the application"),
    Column("keys", ListOf(TEXT), "business keys; null if there are none"),
    Column("tags", TEXT, "the message's tag"),
    Column(
        "properties",
        MapOf(TEXT, TEXT),
        "properties; in a changed message without keys and tags, which have columns of their own; otherwise as stored",
    ),
    Column(
        "body",
        BINARY,
        "the body: before a change, decompressed, as the producer sent it; after the change, as it is sent",
    ),
]

TRANSFORMED = Columns(_MESSAGE)
"""Input and output columns of a function that changes messages."""

REPLAY_ROWS = Columns(
    [
        Column("replay_id", TEXT, "the replay"),
        Column("is_changed", BOOLEAN, "true for the message as it is sent, false for the message before the change"),
        Column("error", TEXT, "reason why the message cannot be sent; null if it can"),
        *_MESSAGE,
    ]
)
"""Messages that a replay changes or copies, one row per message, in the form in which they are sent.

A replay with `--transform` or `--mask`, or one of a store or live topics, writes all rows before it sends the first
message, so that it sends the same messages if it is resumed after a crash. While a function changes the messages, the
table also has their original rows. `maintain` deletes the rows of a replay 30 days after its end, see
`pipelines.replay.replay_rows`.

Key: (`replay_id`, `is_changed`, `broker`, `physical_offset`).
"""
