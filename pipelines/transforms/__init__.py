"""Functions from DataFrames to DataFrames: no session, path, clock or action.

profile         messages counted by queue and window, profiles combined and compared
column_hash     hashes of columns of messages, which profiles sum up
message_keys    the keys of messages as rows, and tables of keys compared
log_stretches   stretches of the brokers' logs that the archive runs have counted
kept_bodies     messages whose bodies must still be there

The examples in docstrings are tests; `spark` is the session.
"""
