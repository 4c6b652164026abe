"""HTML pages: one file each, which works offline, needs nothing from elsewhere and sends nothing anywhere.

How a page is put together:

1. Compute what it shows in `pipelines`. Bound it there: the largest are shown, the rest is summed, and that is said.
2. Make elements of it with these modules. A text that is not `markup.Html` is escaped wherever it stands; give the
   names of topics, groups and stores to `markup.name`, so that they keep their direction to themselves, too.

       markup      `tag(name, *content, **attributes)`, and `name`
       parts       tiles, notices (what was found, what to do), commands to copy, folded content
       tables      tables with search and sort, which are cards on a phone
       line_chart  lines and percentile bands over time, with gaps and marked times; sparklines
       heat_map    a strip of colours for each of some rows over time
       findings    findings grouped, with the first of each group and how many more there are
       decoded     values of findings in words: magic codes, times, sizes
       history     the newest archive runs of a lake
       lineage     a package: the picture of what happened to a message

3. Put them into sections, and these into a `page.Page`: a title, a verdict (a kind and one sentence), facts (lake,
   broker, period), sections. `page.write_page` writes it. With `output.failure_page`, a job that fails writes a page,
   too, so that no older page is taken for its result.

`page.css` and `page.js` are the look and the behaviour of all pages. No page has styles or scripts of its own: the
Content-Security-Policy allows those two alone, by their digests. Without the script all content is there still.
"""
