"""`commitlake ship`: copy a broker's store to an object store or a folder, by a small agent beside the broker."""
