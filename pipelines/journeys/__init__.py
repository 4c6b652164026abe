"""Journeys of business keys over topics: set-based lineage, for all keys of a window of time.

    question    the question: window, margin, selection
    statements  SQL that both engines run: steps of journeys, and hops between topics
    frames      the answers as DataFrames, by Spark
    misfits     paths of journeys by their number of keys, and keys that do not fit
    arrays      the answers as Arrow tables, by DataFusion, without a JVM

The engines share all rules. What differs is the names of four functions, and how rows are put into lists.
"""
