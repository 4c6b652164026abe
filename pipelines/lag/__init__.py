"""Lag of consumer groups: the messages, bytes and time by which each group is behind, now or at a past time.

The modules:

    offsets.py         offsets of groups at a time, from snapshots, with bounds between two snapshots
    wanted.py          tests which messages a group wants, by its subscription
    consumers.py       the rule by which a group consumes a topic, and so all of its queues
    messages.py        protocols between the counters and the sources of messages
    counting.py        counts messages at or after offsets, batch by batch
    queues.py          first and last offsets of queues, also of topics that were deleted and created again
    lake_messages.py   reads the messages of a lake
    store_messages.py  reads the messages of a store, by the entries of its queues or from its log
    verdicts.py        state of a group: ok, slow, stalled, stopped, rewound, lost, ahead, unknown
    waiting.py         delay levels and timers
    halves.py          half messages of transactions in flight
    measure.py         computes the rows of groups
    standing.py        the time since which a group has not moved
    answer.py          measures all stores of a lake, or one store

Nothing here needs Spark or a JVM.
"""
