"""Maintenance of a lake's tables without a JVM: merging small files, sorting rows, and dropping old data.

file_replacement   commits that replace data files of a table
sorted_file_merge  merges sorted files into one, in bounded memory
compaction         OPTIMIZE: chooses small files, merges them, and commits the merges one by one
expiry             drops rows and packs that are older than their retention
log_cleanup        VACUUM, checkpoints, and deletion of old log entries
pack_merging       merges small packs, and finds packs that no row refers to

deltalake's own OPTIMIZE is not used. It appends files to one another, so that every row group holds every topic, or it
orders rows by the first bytes of a value. And if two of them run at the same time, or one runs while a merge of this
package does, every row is duplicated (deltalake 1.6.6 finds no conflict between removals that change no data).
"""
