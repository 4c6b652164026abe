"""Sending of rows to topics: batches of rows in, requests out, and an outcome for each row.

rows      columns as messages ready to go        parcels   rows as requests, by topic and queue
sender    requests on their way                  outcomes  what became of each row
options   what a user of Spark can ask for       writer    the glue to Spark
"""
