"""Forecast of which segments a broker deletes, when, and whether they are archived. Needs no Spark.

rules       the broker's rule: age, hours of the day, how full the disk is; functions of values
disk        how full a disk is, as the broker counts it, and how fast it fills
segments    a store's segments with their last write, and how much of each is in the lake
forecast    when each segment of a store goes
"""
