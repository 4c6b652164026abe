"""Lag of consumer groups: the messages, bytes and time by which each group is behind, now or at a past time.

The modules:

    offsets.py               offsets of groups at a time, from snapshots, with bounds between two snapshots
    subscriptions.py         subscriptions of groups at a time, and the rule by which a group consumes a topic
    subscription_filter.py   tests which messages a group wants, by its subscription
    backlog_counting.py      counts messages at or after offsets, batch by batch
    queue_offset_spans.py    first and last offsets of queues, and the protocols of the sources of messages
    lake_messages.py         finds the queues of a lake and the messages in them
    messages_table.py        the table `messages`, read in this process or by tasks
    store_messages.py        reads the messages of a store, by the entries of its queues or from its log
    verdicts.py              state of a group: ok, slow, stalled, stopped, rewound, lost, ahead, unknown
    held_back_messages.py    delay levels, timers, retry stores
    half_messages.py         half messages of transactions in flight
    group_lag.py             computes the rows of groups
    group_summaries.py       lag by group, and the time since which a group has not moved
    store_lag.py             measures all stores of a lake, or one store
"""
