"""Quality of what an archive run takes: its profile, the suites' judgement on it, and the page that tells it.

profile     rows of a task to a profile           judge     suites on a profile, by great_expectations
merging     profiles of tasks to one              report    the judgement, and as rows of `quality_results`
parts       a profile's columns as arrays         frames    the tables that the suites judge
rows        a task's columns as arrays            stretches a profile piece by piece, judged as a whole
kernel      compiled: one pass over the rows      figures   what the page shows, summed up piece by piece
wire        profiles as bytes, and as rows        page      the judgement as HTML
partitions  large profiles as files' bytes        bars      pictures for the page
errors      what can go wrong                     template  the page around what page fills in

Nothing here makes a file but `page`, and nothing opens a connection.
"""
