"""The pictures of a story: a page (`commitlake lineage --html`) and a diagram for a ticket (`--format mermaid`).

    rows       which steps are drawn, and which of many are folded
    lanes      the columns of a picture: a topic or a group each, and a track for each message in it
    times      times and lengths of time in words
    glyphs     shapes and colours by kind of step
    graph      the steps one below the other, with lanes and edges; long gaps are folded
    overview   the same steps on an axis of time, to scale
    details    what is known of each step: columns, properties, body
    page       all of it as a page
    mermaid    the story as a Mermaid flowchart
    topics     a page of its own: which topics feed which

Time runs down in the graph, so that each step has room for words on a phone and on paper, too. What is shown of bodies
and properties is masked before, by `pipelines.lineage.masked`.
"""
