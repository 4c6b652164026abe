"""Erases messages from a lake permanently: bodies, keys and personal properties. Their rows stay, with evidence.

selection            chooses messages: by key, by id, and copies that a broker made of them; finds their rows
ledger               the table `erasures`: erasures that have begun, are done, or wait
data_file_rewriting  rewrites data files without erased data, one commit for each table
text_erasure         tables in which a key is part of a text: quarantine and replays
body_erasure         erases bodies in packs
count_corrections    corrects topic_minutes and the profiles of runs
purge                deletes older versions, old log entries and unused files after the retention
run                  all of it, in an order that is safe to interrupt at any point

The tables with texts come first, because their rows are found by the keys, which are not stored. The commit to
`erasures` then makes the erasure valid. Everything that is found by the places of the messages comes last: the next run
can complete it from `erasures` alone.
"""
