"""Snapshots of how far consumers have come: read from a store's files or asked of a live broker, kept in the lake.

The modules:

    progress.py   what a snapshot is
    files.py      the files of a store
    live.py       a live broker
    append.py     the tables `consumer_offsets` and `subscriptions`

`archive` takes one with each run. Nothing here needs Spark or a JVM.
"""
