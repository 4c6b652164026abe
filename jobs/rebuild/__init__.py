"""`commitlake rebuild`: make a store's queues and index again from its log, or salvage a damaged log."""
