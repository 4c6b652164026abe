"""Snapshots of consumer offsets and subscriptions, from a store's files or a live broker, stored in the lake.

The modules:

    progress.py   the snapshot of a store
    files.py      reads the files of a store
    live.py       queries a live broker
    append.py     adds rows to the tables `consumer_offsets` and `subscriptions`

Each run of `archive` takes one. Nothing here needs Spark or a JVM.
"""
