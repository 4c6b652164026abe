"""Message broker that writes the same files as RocketMQ, with the standard library only.

`stores` reads and writes the files, `broker` holds the state of a broker, `delivery` adds delays, retries, dead letters
and transactions, `handlers` answers requests, `server` serves them over TCP, `nameserver` is a name server,
`replication` copies a log to a slave, and `shop_traffic` fills a store with the messages of a small shop.
"""
