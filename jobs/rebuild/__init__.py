"""`commitlake rebuild`: rebuild a store's queues and index from its log, or salvage a damaged log."""
