"""The table `lag_minutes`: lag of consumer groups by minute, computed from snapshots and messages.

The modules:

    progress.py             progress that the table's log records: the last minutes, and the versions that were read
    minutes_to_recompute.py minutes that must be computed again, because rows for them came late
    minute_computation.py   computes the rows of an hour
    backfill.py             adds missing minutes, and replaces those that are computed again
    coverage.py             minutes that are computed, and need not be computed again
    minute_reader.py        the lag at a minute, or at the ends of windows, from the rows of the table
"""
