"""Iceberg tables over the data files of Delta tables."""
