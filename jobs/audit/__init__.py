"""`commitlake audit`: compare the lake's messages with stores, packs and HBase."""
