"""Formats of the files of a JMQ store."""
