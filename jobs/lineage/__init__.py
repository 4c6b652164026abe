"""`commitlake lineage`: show what happened to an order, as a tree, table, JSON, picture, or events for other tools.

arguments      options, and checks of their combinations
command        the command line: reads a story and prints it
tree           the story in a terminal
story_json     the story for programs
topics         which topics feed which, in all forms
follow         new steps of a story, as they appear
openlineage    the story as OpenLineage events, to a file or a URL
"""
