"""The sides of an audit by tasks of a runner, without Spark.

sides     the sides, which start the tasks         message_rows  rows of `messages`, as far as they are wanted
windows   rows counted by window, as Arrow         store_tasks, hbase_tasks, body_tasks   one split, salt or pack each
profile   windows of many tasks, in bounded memory run_counts    what the runs said that they took
key_rows  keys that only one side has              partition_files   rows on disk, in parts that fit into memory

`spark_sides` computes the same with DataFrames, and shares no code with this but the hashes' definition: tests compare
the two.
"""
