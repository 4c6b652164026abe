"""Audit: compares a lake at one moment with stores, packs, HBase and the tables that follow `messages`.

moment       the state of the lake to audit      comparisons  comparisons of two sides
span         the time range of messages          verdicts     results, as text and JSON
sides        interfaces of the sides             tables       checks of data files and of tables that follow
spark_sides  sides as DataFrames on Spark        store_ranges ranges of the stores that can be compared
local        sides by tasks, without Spark       open_sides   opens one of these two
"""
