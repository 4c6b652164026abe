"""Every touch of the outside world from Spark: broker stores, Delta tables, sessions."""
