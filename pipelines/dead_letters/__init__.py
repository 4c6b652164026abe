"""Messages that consumer groups gave up: how many, of which group and topic, and why."""
