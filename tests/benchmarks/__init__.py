"""Measurements; `poe bench` runs them, `python -m tests.benchmarks --help` prints the choices.

suite       what is measured, and beside what
targets     which figures are compared, and what they should come to
runs        one measurement, and taking turns
corpus      the stores that are read
reading     this project's reading, one core, without Spark
java        RocketMQ's own reading, one thread
asked       the processes that make the passes of both
spark_runs  this project under Spark, and what Spark alone needs
packs       compression of bodies alone
naive       what one would write first in PySpark
memory      what Spark's Python workers take
machine     what all this ran on
report      the tables, and the JSON file
"""
