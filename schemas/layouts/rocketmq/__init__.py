"""Formats of the files of a RocketMQ store, and of a BoltMQ store in RocketMQ's layout."""
