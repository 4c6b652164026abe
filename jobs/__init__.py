"""Command lines: each job reads its configuration, calls connectors and pipelines, and prints a summary."""
