"""`commitlake evidence`: keys for evidence, and whether a chain of it is whole."""
