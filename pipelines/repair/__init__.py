"""Repair of a lake: restores `messages` to its last intact version, and rebuilds the tables that follow it.

plan                damages of a lake, and how to repair them
run                 repairs a lake as planned
delta_log           returns the log of a table to its last intact version
delta_log_rebuild   rebuilds the log of `messages` from data files, if no version is intact
commits             commits of repairs: progress and lost runs of `messages`, and numbers of removed rows
data_file_check     finds data files that do not match the log
content_checksums   finds rows that another program has changed
refill_from_stores  reads lost messages from the brokers' stores again
repeat_runs         reads what runs write to other tables from the stores again
derived_tables      deletes rows of lost runs, and adds files that commits name
history_tables      tables whose rows are nowhere else, rebuilt from their data files
replay_tables       tables of replays

Nothing is deleted: replaced files are moved to `_damaged/<time>` in the lake.
"""
