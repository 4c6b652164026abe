"""`commitlake explain`: explain what a read of a store would read."""
