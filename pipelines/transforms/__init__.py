"""Functions from DataFrames to DataFrames: no session, path, clock or action.

profile         counts of messages by queue and window; combination and comparison of such profiles
column_hash     hashes of message columns, for the sums in profiles
message_keys    the keys of messages as rows, and comparison of two tables of keys
log_stretches   the ranges of the brokers' logs that archive runs have counted
kept_bodies     messages whose bodies cannot have expired

The examples in docstrings are tests; `spark` is the session.
"""
