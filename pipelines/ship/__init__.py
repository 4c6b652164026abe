"""Shipping of a broker's store to an object store or a folder, by a small agent beside the broker. Needs no Spark.

agent          rounds: shipping of what has changed, in an order that is consistent for readers
growing_files  one file that grows: new parts, merges of small ones, checks, and the sealed file
log_end        the last complete record of the segment that the broker writes
source_store   files of the broker's store, which are only read
settings       what the operator chose
"""
