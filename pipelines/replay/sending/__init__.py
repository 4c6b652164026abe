"""Sends the messages of a replay's plan: each exactly once, in order in each queue, at a limited rate.

target_client   opens the clients of the target
batches         encodes rows as batches
queue_sender    sends one batch to one queue, and finds out whether it was stored
rate_limit      limits the rate
replay_control  requests for another rate or a stop, and pauses while a group is behind
share_sender    sends a plan's messages for some queues of the target, part by part
tasks           divides the queues among tasks, as on Spark's executors
run             takes a replay over, and sends it in this process or by tasks
"""
