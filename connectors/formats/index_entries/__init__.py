"""Readers of a broker's indexes, queues and IndexFiles, as columns.

entry_options     the user's options                      entry_damage   bad ranges, handled by the mode
queue_file_parts  the parts of queue files that are read  queue_rows     a part as Arrow batches
index_file_parts  the same for IndexFiles                 index_rows     the same for IndexFiles
entry_windows     entries of a file, a window at a time   entry_columns  columns and batches of rows
"""
