"""`commitlake evidence`: create keys for evidence, and verify a chain of evidence."""
