"""Files of a JMQ store."""
