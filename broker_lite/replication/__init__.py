"""Replication: a master sends its log to slaves, and a slave keeps a byte-for-byte copy of it.

    protocol            the wire protocol, both sides: bytes in, bytes out
    log_copy            a slave's log: bytes of the master's log, and the queues and index built from its records
    master              connections of slaves  sync_master  answers that wait until a slave has the message
    slave               the connection to a master
    table_synchronizer  topics, groups and offsets, which are not in the log
    role                the role of a broker, as the server uses it, and a slave's dispatcher, which refuses messages

There is no automatic failover. A slave's store can be opened as a master's; it continues where the copy ends.
"""
