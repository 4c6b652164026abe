"""The lake: a folder of Delta tables, written by Spark or without it, read with and without Spark."""
