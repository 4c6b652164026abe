"""Sending of batches of rows to topics, with an outcome for each row.

prepared_rows  columns as checked and encoded messages  parcels   rows as requests, by topic and queue
sender         requests in progress                     outcomes  the outcome of each row
options        options of a write                       writer    Spark's interface
"""
