"""Code shared by tests: builders of stores, lakes and messages, fixtures, waiting. Servers are in `tests.servers`."""
