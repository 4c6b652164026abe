"""Code that tests share: builders of stores, lakes and messages, fixtures, waiting. Servers are in `tests.servers`."""
