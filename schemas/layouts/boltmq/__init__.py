"""Formats of BoltMQ, a reimplementation of RocketMQ in Go, as far as they differ from RocketMQ's."""
