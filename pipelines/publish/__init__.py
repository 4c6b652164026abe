"""Publication of a lake's tables for readers of Iceberg."""
