"""The table `consumptions`: deliveries to applications, from the consume logs of JMQ stores.

follow    adds the records that stores have had since the last run
"""
