"""Sending of messages to RocketMQ.

producer                        a producer of messages
messages, compression, unique_keys  what a producer sends, and the ids that it gives
sending                         the attempts of a send, and brokers to avoid for a while
tracked_connections             connections whose end at the broker is known
"""
