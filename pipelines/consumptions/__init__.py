"""The table `consumptions`: deliveries to applications, from the consume logs of JMQ stores.

table_update  adds the records that were written to the stores since the last run
"""
