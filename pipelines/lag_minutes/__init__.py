"""The table `lag_minutes`: lag of consumer groups by minute, computed from snapshots and messages.

The modules:

    progress.py    progress that the table's log records: the last minutes, and the versions that were read
    late_rows.py   minutes that must be computed again, because rows for them came late
    minutes.py     computes the rows of an hour
    follow.py      adds missing minutes, and replaces those that are computed again
    coverage.py    minutes that are computed, and need not be computed again
    reading.py     the lag at a minute, or at the ends of windows, from the rows of the table
"""
