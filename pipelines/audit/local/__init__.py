"""The two sides of an audit, computed by tasks of a runner without Spark.

sides     the sides, which start the tasks         message_rows  reads the wanted rows of `messages`
windows   counts rows by window, as Arrow          store_tasks, hbase_tasks, body_tasks   one split, salt or pack each
profile   windows of many tasks, in bounded memory run_counts    counts that runs recorded of their messages
key_rows  keys that only one side has              partition_files   rows on disk, in parts that fit into memory

`spark_sides` computes the same with DataFrames and shares only the definition of the hashes with this package. Tests
compare the two.
"""
