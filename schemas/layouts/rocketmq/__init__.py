"""Files of a RocketMQ store, and of one of BoltMQ's in RocketMQ's layout."""
