"""Forecast of which segments a broker deletes, when, and whether they are archived. Needs no Spark.

deletion_rules     the broker's rules: age, hours of the day, disk usage as the broker computes it
segments           a store's segments with their last write, and how much of each is in the lake
deletion_forecast  forecast of each segment's deletion, and the verdict on each store
"""
