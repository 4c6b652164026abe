"""Forecast of which segments a broker deletes, when, and whether they are archived. Needs no Spark.

rules       the broker's rule: age, hours of the day, disk usage; functions of values
disk        disk usage as the broker computes it, and its growth
segments    a store's segments with their last write, and how much of each is in the lake
forecast    time at which each segment of a store is deleted
"""
