"""`commitlake dump`: print records, queues or indexes as JSON lines."""
