"""Pure functions from DataFrames to DataFrames: no session, path, clock or action.

They import `schemas` and pyspark only.

columns              the columns of a declared table
dead_letters         messages that consumer groups gave up
rates                messages counted by groups and windows of time
moments              moments at which a state is wanted, and what was last known at each of them
group_offsets        offsets of consumer groups at given moments
group_subscriptions  subscriptions of consumer groups at given moments
queue_spans          first and last offsets of queues at given moments
lag                  lag of consumer groups at given moments
stored_lag           the same, from the rows of `lag_minutes`
"""
