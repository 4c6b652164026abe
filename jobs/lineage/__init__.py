"""`commitlake lineage`: show what happened to an order, as a tree, table, JSON, picture, or events for other tools.

arguments      what can be asked, and what does not go together
command        asks and prints
tree           the story in a terminal
story_json     the story for programs
topics         which topics feed which, in all forms
follow         new steps of a story while they come
openlineage    the story as OpenLineage events, to a file or a URL
"""
