"""A lake, an archive whose tables are opened by name; the commits of runs, and the tables that follow `messages`.

delta_log   the log of a Delta table: read, checked and sealed
rows        rows of tables in data files, and their sums
packs       the bodies of messages
"""
