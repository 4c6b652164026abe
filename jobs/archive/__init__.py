"""`commitlake archive`: copy new messages from broker stores into the lake."""
