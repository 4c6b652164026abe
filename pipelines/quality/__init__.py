"""Quality checks of an archive run: its profile, the results of the expectation suites, and the report.

profile      computes a profile from a task's rows  judge        runs suites on a profile, part by part
merging      merges profiles of tasks              frames       tables that the suites judge
parts        a profile's columns as arrays         facts        facts of a run beside its profile
task_rows    a task's columns as arrays            frame_judge  runs suites on one table, by great_expectations
kernel       compiled: one pass over the rows      loading      loads great_expectations without output
wire         profiles as bytes, and as rows        judgement    result of one expectation
partitions   large profiles as bytes of files      report       all results, and sentences on them
stretches    divides a profile into parts          figures      sums for the page, part by part
errors       errors of quality checks              verdict      verdict on the run
result_rows  results and verdict as rows of `quality_results`
row_runs     compiled: runs of consecutive rows, here and in topic_minutes
profile_judge  interface of a judge: in this process, or in its own (judge_process)
placeholders   modules of great_expectations that no suite uses

Nothing here writes a file or opens a connection.
"""
