"""A compact message broker that writes the same files as RocketMQ; standard library only.

`store` is the files, `delivery` is what a broker does to messages on top of them (delay, retry, dead letters,
transactions), `shop_traffic` fills a store with the life of a small shop.
"""
