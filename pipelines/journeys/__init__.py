"""Journeys of business keys over topics: set-based lineage, for all keys of a window of time.

    journeys_query  the question: window, margin, selection
    sql_statements  SQL that both engines run: the records of keys, and what is known of each
    key_records     these records in slices of keys, from DataFusion, or sorted by Spark
    arrow_journeys  journeys of a slice, and hops between topics, as Arrow tables, by numpy
    spark_journeys  the same as DataFrames: Spark runs `arrow_journeys` in its Python workers
    misfits         paths of journeys by their number of keys, and keys that do not fit

The engines share all rules. What differs is the names of two functions of SQL, and how records come to be in slices.
"""
