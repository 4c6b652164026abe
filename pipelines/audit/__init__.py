"""Audit: compares a lake at one moment with stores, packs, HBase and the tables that follow `messages`.

audited_versions                       the state of the lake to audit
audited_ranges                         ranges of messages: of time, and of logs
store_ranges                           ranges of the stores that can be compared
compared_sides                         the sides, counted by a runner's tasks; window_profiles: windows of many tasks
counts_by_window                       counts rows by window, as Arrow
message_rows, hbase_tasks, body_tasks  tasks: data files, salts, and packs
comparisons                            comparisons of two sides
run_counts                             counts that runs recorded
key_differences                        keys that only one of two tables has
erasure_corrections                    changes by erasures
checksums_after_repair                 profiles of messages that a repair has read again
topic_minutes_check                    check of `topic_minutes`
topic_tables_check                     typed tables of topics, by topic and hour
table_checks                           checks of data files and of tables that follow
verdicts                               results, as text and JSON
"""
