"""Quality checks of an archive run: its profile, the results of the expectation suites, and the report.

profile      rows of a task to a profile          judge        suites on a profile, stretch by stretch
merging      profiles of tasks to one             frames       the tables that the suites judge
parts        a profile's columns as arrays        facts        what a run knows beside its profile
rows         a task's columns as arrays           frame_judge  suites on one table, by great_expectations
kernel       compiled: one pass over the rows     loading      great_expectations, loaded without a word
wire         profiles as bytes, and as rows       judgement    what came of one expectation
partitions   large profiles as files' bytes       report       all judgements, and sentences on them
stretches    a profile piece by piece             figures      what the page shows, summed up piece by piece
errors       what can go wrong                    verdict      what the run came to
result_rows  judgements and verdict as rows of `quality_results`
row_runs     compiled: which rows lie together, here and in topic_minutes
profile_judge  what judges a profile: here, or in a process of its own (judge_process)

Nothing here makes a file, and nothing opens a connection.
"""
