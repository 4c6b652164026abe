"""Audit: compares a lake at one moment with stores, packs, HBase and the tables that follow `messages`.

moment       the state of the lake to audit          span          ranges of messages: of time, and of logs
compared_sides        the sides, counted by a runner's tasks  comparisons   comparisons of two sides
window_counts      windows of many tasks                   windows       counts rows by window, as Arrow
message_rows, compared_sides, hbase_tasks, body_tasks         tasks: data files, splits, salts, and packs
run_counts   counts that runs recorded               key_rows      keys that only one of two tables has
erased       changes by erasures                     refilled      profiles of messages that a repair has read again
tables       checks of data files and of tables that follow        minutes   check of `topic_minutes`
store_ranges ranges of the stores that can be compared             verdicts  results, as text and JSON
"""
