"""Functions from DataFrames to DataFrames: no session, path, clock or action.

profile         counts of messages by queue and window; combination and comparison of such profiles
message_keys    the keys of messages as rows, and comparison of two tables of keys
log_stretches   the ranges of the brokers' logs that archive runs have counted, and messages whose bodies are kept

The examples in docstrings are tests; `spark` is the session.
"""
