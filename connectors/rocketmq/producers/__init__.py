"""Sending of messages to RocketMQ.

producer, transactions          producers of messages, and of transactional ones
messages, compression, unique_keys  what a producer sends, and the ids that it gives
sending                         the attempts of a send, and brokers to avoid for a while
heartbeats, tracked_connections registration at brokers, and connections whose end at the broker is known
"""
