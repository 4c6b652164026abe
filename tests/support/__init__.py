"""What tests share: builders of stores, lakes and messages, fixtures, and waiting. Servers are in `tests.servers`."""
