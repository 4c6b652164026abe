"""`commitlake audit`: compare what was archived with stores, packs and HBase."""
