"""The log of a Delta table: its files, checks for damage, and the records by which a lake notices damage.

file_names  names in a table's folder            entries       lines of entries as JSON
files       list, read and write                 history       the commits, newest first
check       damage, planted and missing entries  file_actions  the files that a table has
versions    changes between two versions         seals         hashes of entries, and the sum of the rows

checkpoint_check  checkpoints  newest_versions  the newest version, in the lake  row_sum_changes  sums in commits
"""
