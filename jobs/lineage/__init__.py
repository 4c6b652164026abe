"""`commitlake lineage`: show what happened to an order, as a tree, table, JSON, picture, or events for other tools.

arguments       options, and checks of their combinations
command         the command line: reads a story and prints it
story_tree      the story in a terminal
story_json      the story for programs
topic_graph     which topics feed which, in all forms
story_follower  new steps of a story, as they appear
openlineage     the story as OpenLineage events, to a file or a URL
"""
