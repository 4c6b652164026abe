"""The pictures of a story: a page (`commitlake lineage --html`) and a diagram for a ticket (`--format mermaid`).

    picture_rows       selection of the drawn steps; the others are folded
    lanes              the columns of a picture: one for each topic or group, with a track for each message
    step_shapes        shapes and colours by kind of step
    story_graph        the steps as rows, with lanes and edges; long gaps are folded
    timeline_overview  the same steps on a time axis, to scale
    step_details       the data of each step: columns, properties, body
    mermaid            the story as a Mermaid flowchart

Time runs down in the graph, so that each step has room for words also on a phone and on paper. The displayed bodies
and properties are already masked by `pipelines.lineage.history_masking`.
"""
