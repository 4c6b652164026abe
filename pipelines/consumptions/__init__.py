"""The table `consumptions`: deliveries to applications, from the consume logs of JMQ stores.

follow    adds the records that were written to the stores since the last run
"""
