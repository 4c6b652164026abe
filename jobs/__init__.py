"""Command lines: each job reads its configuration, calls connectors and pipelines, and ends with a summary."""
