"""Journeys of business keys over topics: set-based lineage, for all keys of a window of time.

    journeys_query  the question: window, margin, selection
    sql_statements  SQL that both engines run: steps of journeys, and hops between topics
    spark_journeys  the answers as DataFrames, by Spark
    misfits         paths of journeys by their number of keys, and keys that do not fit
    arrow_journeys  the answers as Arrow tables, by DataFusion, without a JVM

The engines share all rules. What differs is the names of four functions, and how rows are put into lists.
"""
