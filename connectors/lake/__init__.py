"""The lake: a folder of Delta tables, written by Spark, read with and without it."""
