"""`DEAD_LETTERS`: messages that consumer groups have given up, as analysts query them; not a stored table of a lake.

One row for each dead letter: the columns of `messages`, with the group, and what is known of the reason.
"""

from __future__ import annotations

from commitlake.schemas.tables.columns import BOOLEAN, TEXT, Column, Columns
from commitlake.schemas.tables.messages import MESSAGES

_ORIGIN = Column("origin_topic", TEXT, "topic that the message was sent to; null if the record does not name it")
DEAD_LETTERS = Columns(
    [
        Column("group", TEXT, "the consumer group that gave the message up"),
        Column("reason", TEXT, "beginning of the client's text on its failure; null if the client sets none"),
        Column("replayed", BOOLEAN, "true if a replay had sent the message, so that it has failed again"),
        *(_ORIGIN if column.name == _ORIGIN.name else column for column in MESSAGES),
    ]
)
