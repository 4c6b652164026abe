"""`commitlake tps`."""
