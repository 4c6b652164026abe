"""Lag of consumer groups: how many messages, how many bytes and how long each group is behind, now or at a past time.

The modules:

    offsets.py         where groups were at a time, from snapshots, with bounds between two of them
    wanted.py          which messages a group wants, from its subscription
    messages.py        what counts ask of messages, and messages give to counts
    counting.py        counts messages behind, batch by batch
    queues.py          where queues begin and end, also of topics that were deleted and made again
    lake_messages.py   the messages of a lake
    store_messages.py  the messages of a store, by the entries of its queues or from its log
    verdicts.py        how a group does: ok, slow, stalled, stopped, rewound, lost
    waiting.py         delay levels and timers
    halves.py          half messages of transactions in flight
    measure.py         the rows of groups
    standing.py        since when a group has not moved
    answer.py          all stores of a lake, or of a path

Nothing here needs Spark or a JVM.
"""
