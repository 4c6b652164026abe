"""Snapshots of consumer offsets and subscriptions, from a store's files or a live broker, stored in the lake.

The modules:

    progress.py          the snapshot of a store
    store_file_reader.py reads the files of a store
    broker_queries.py    queries a live broker
    table_append.py      adds rows to the tables `consumer_offsets` and `subscriptions`

Each run of `archive` takes one. Nothing here needs Spark or a JVM.
"""
