"""`commitlake explain`: tell what a read of a store would read."""
