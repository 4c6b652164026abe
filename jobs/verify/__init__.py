"""`commitlake verify`: look for damage in a store."""
