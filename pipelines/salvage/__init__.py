"""Salvage of a damaged log: writes a log that brokers can read, with every intact record at its own offset.

segments   writes one segment, with fillers in damaged ranges: a task
run        the entry point: `salvage_store`, and what follows the log's end and is left out
"""
