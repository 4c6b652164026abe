"""Quality checks of an archive run: its profile, the results of the expectation suites, and the report.

profile             computes a profile from a task's rows; compiled_profiling: compiled, one pass over the rows
checksums           hashes of rows, for the profile
profile_columns     a profile's columns as arrays, as bytes, and as rows
profile_merging     merges profiles of tasks
profile_partitions  large profiles as bytes of files
expectation_input   facts of a run beside its profile, and the profile in parts
profile_judge       runs suites on a profile, part by part; judge_subprocess: in a process of its own
pandas_frames       tables that the suites judge
frame_judge         runs suites on one table, by great_expectations; great_expectations_loading: loads it without output
report              all results, sentences on them, and the verdict, also as rows of `quality_results`
page_figures        sums for the page, part by part

Nothing here writes a file or opens a connection.
"""
