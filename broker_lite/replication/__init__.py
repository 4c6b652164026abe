"""A master that gives its log to slaves, and a slave that keeps a copy of it, byte for byte.

    protocol    what goes over the wire, both sides: bytes in, bytes out
    log_copy    the slave's log: bytes of the master's, and what follows from the records in them
    master      connections of slaves        sync_master     answers that wait until a slave has the message
    slave       the connection to a master   slave_broker    a broker that takes no messages
    synchronize topics, groups and offsets, which are not in the log
    part        all of it, as a server has it

Nobody becomes master by himself: a slave's store, opened as a master's, goes on where the copy ends.
"""
