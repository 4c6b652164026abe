"""Messages taken out of a lake for good: bodies, keys and personal properties; their rows stay, and are proven.

selection   which messages: by key, by id, and the copies that a broker made of them
ledger      the table `erasures`: what was begun, what is done, what waits
hits        which data files hold rows of messages
rewriting   data files written again without what is erased, one commit for each table
texts       tables in which a key is part of a text: quarantine and replays
bodies      bodies taken out of packs
purge       older versions, old log entries and garbage, when the erasure's retention is over
run         all of it, in an order in which it may be killed anywhere

The order: the tables with texts first, because their rows are found by the keys, which nothing remembers; then the
commit to `erasures`, from which on the erasure is valid; then all that is found by the places of the messages, which
the next run finishes from `erasures` alone.
"""
