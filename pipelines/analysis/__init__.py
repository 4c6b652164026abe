"""A lake as an object, for analysts, notebooks and support tools: what `commitlake.open` returns.

lake                 `AnalysisLake`, with a method for each question
selection_arguments  the choice of messages, from the arguments of a method
rates_arguments      the question on rates, from the arguments of `tps`
journeys_arguments   the question on journeys, from the arguments of `journeys` and `topic_flow`
lag_arguments        the question on lag, from the arguments of `lag` and `lag_history`
arrow_tables         the tables of a lake as Arrow tables, by this process
arrow_lag            lag as Arrow tables
spark_tables         the tables of a lake as DataFrames, by a Spark session
spark_lag            lag as DataFrames
"""
