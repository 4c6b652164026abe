"""Measurements; `poe bench` runs them, `python -m tests.benchmarks --help` prints the choices.

suite       measurements and comparisons of `poe bench`
targets     comparisons of figures, and their targets
runs        single measurements, and the order of passes
corpus      the stores that are read
reading     this project's reader on one core, without Spark
java        RocketMQ's own reader on one thread
asked       processes that run the passes of both readers
spark_runs  this project under Spark, and the time of Spark alone
packs       compression of bodies alone
naive       the obvious program in PySpark
memory      memory of Spark's Python workers
machine     description of the machine
report      tables and a JSON file of the results
"""
