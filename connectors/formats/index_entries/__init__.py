"""Readers of a broker's indexes, queues and IndexFiles, as columns.

entry_options    what a user can ask for                    entry_damage   what is not an entry, by the mode
queue_parts      which queue files are read, in which parts  queue_rows     a part as Arrow batches
index_parts      the same for IndexFiles                     index_rows     the same for IndexFiles
entry_windows    entries of a file, a window at a time       entry_columns  columns and batches of rows
"""
