"""Pure functions from DataFrames to DataFrames: no session, path, clock or action.

They import `schemas` and pyspark only.

columns   the columns of a declared table
rates     messages counted by groups and windows of time
"""
