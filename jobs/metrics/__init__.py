"""`commitlake metrics`: the lag of consumer groups for Prometheus."""
