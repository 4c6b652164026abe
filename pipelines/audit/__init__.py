"""Audit: the lake at one moment, compared with stores, packs, HBase and the tables that follow `messages`.

moment       which state of the lake           comparisons  which sides are compared, and when again
span         which stored messages             verdicts     what came of it, as text and JSON
sides        the sides: interfaces             tables       data files, and the tables that follow `messages`
spark_sides  as Spark's DataFrames             store_ranges what of the stores can be compared
local        by tasks, without Spark           open_sides   one of these two
"""
