"""`commitlake tps`: show messages and bytes per second."""
