"""How files of BoltMQ, a re-implementation of RocketMQ in Go, differ from RocketMQ's."""
