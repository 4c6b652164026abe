"""Quality of what an archive run takes: its profile, the suites' judgement on it, and the page that tells it.

profile   rows of a task to a profile           judge     suites on a profile, by great_expectations
merging   profiles of tasks to one              report    the judgement, and as rows of `quality_results`
parts     a profile's columns as arrays         frames    the tables that the suites judge
rows      a task's columns as arrays            page      the judgement as HTML
kernel    compiled: one pass over the rows      bars      pictures for the page
template  the page around what page fills in    wire      profiles as bytes, and as rows of `profiles`
errors    what can go wrong

Nothing here makes a file but `page`, and nothing opens a connection.
"""
