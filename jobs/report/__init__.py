"""Output of reports (`schemas.report`): HTML pages, and texts and cells for notebooks.

    html_page       a report as one HTML file, which works offline, loads no other files and sends no data
    html_blocks     its blocks as HTML: figures, notices, commands to copy, tables with search and sort
    charts          its charts as SVG, with their numbers as a table; `axes` has their scales
    flow_diagram    paths as bands whose width is their number, as SVG
    html_elements   HTML elements built by calls, which escape all text
    text_blocks     its blocks as lines
    findings        grouped findings, with the first of each group and the number of the others
    value_decoding  values of findings in words: magic codes, times, sizes
    run_history     the newest archive runs of a lake
    page_file       the file of a job's page. With `write_page_on_failure`, a job that fails also writes a page, so
                    that an older page is not taken for its result

A capability makes its report from data that `pipelines` has limited: the largest entries, and the sum of the rest.
Names of topics, groups and stores are `Name`s, so that their text direction does not affect the text around them.

`page.css` and `page.js` are the style and the script of all pages. No page has styles or scripts of its own, because
the Content-Security-Policy allows only these two, by their digests. Without the script, pages still show all content.
"""
