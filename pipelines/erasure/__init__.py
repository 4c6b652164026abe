"""Erases messages from a lake permanently: bodies, keys and personal properties. Their rows stay, with evidence.

selection   chooses messages: by key, by id, and copies that a broker made of them
ledger      the table `erasures`: erasures that have begun, are done, or wait
hits        finds the data files with rows of messages
rewriting   rewrites data files without erased data, one commit for each table
texts       tables in which a key is part of a text: quarantine and replays
bodies      erases bodies in packs
purge       deletes older versions, old log entries and unused files after the retention
run         all of it, in an order in which it may be killed anywhere

First come the tables with texts, because their rows are found by the keys, which are not stored. Then comes the commit
to `erasures`, from which on the erasure is valid. Then comes everything that is found by the places of the messages,
which the next run can complete from `erasures` alone.
"""
