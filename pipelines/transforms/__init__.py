"""Pure functions from DataFrames to DataFrames: no session, path, clock or action.

They import `schemas` and pyspark only.

columns       the columns of a declared table
dead_letters  messages that consumer groups gave up
rates         messages counted by groups and windows of time
"""
