"""Rows of tables in Parquet files: how tasks write and read them, and their checksums.

data_files         of `messages` and other large tables, by date
small_table_files  of small tables
table_rows         rows of a file in parts
statistics         of a file, for Delta
row_sums           sums of rows, by which changes are noticed
hashing            compiled: hashes of columns
message_places     many places of logs, looked up together
"""
