"""Audit: the lake at one moment, compared with stores, packs, HBase and the tables that follow `messages`."""
