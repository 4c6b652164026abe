"""A lake as an object, for analysts, notebooks and support tools: what `commitlake.open` returns.

lake            `Lake`, with a method for each question
selecting       the choice of messages, from the arguments of a method
rates_question  the question on rates, from the arguments of `tps`
arrow_tables    the tables of a lake as Arrow tables, by this process
spark_tables    the tables of a lake as DataFrames, by a Spark session
"""
