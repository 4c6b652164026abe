"""Lag of consumer groups: how many messages, how many bytes and how long each group is behind, now or at a past time.

The modules:

    offsets.py         where groups were at a time, from snapshots, with bounds between two of them
    wanted.py          which messages a group wants, from its subscription
    counting.py        counts messages behind, batch by batch
    lake_messages.py   the messages of a lake
    store_messages.py  the messages of a store
    verdicts.py        how a group does: ok, slow, stalled, stopped, rewound, lost
    waiting.py         delay levels, timers and half messages
    measure.py         the rows of groups
    answer.py          all stores of a lake, or of a path

Nothing here needs Spark or a JVM.
"""
