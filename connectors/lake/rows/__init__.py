"""The rows of tables in Parquet files: written by tasks, read by tasks, and summed.

data_files  of `messages` and other large tables, by date    plain_files  of small tables
table_rows  rows of a file in parts                          statistics   of a file, for Delta
row_sums    sums of rows, by which changes are noticed       hashing      compiled: hashes of columns
"""
