"""HTML pages: one file each, which works offline, loads no other files and sends no data.

Steps to create a page:

1. Compute its data in `pipelines`. Limit the data there: show the largest entries, sum the rest, and say so.
2. Create elements with these modules. Any text that is not `markup.Html` is escaped. Pass the names of topics, groups
   and stores to `markup.name`, so that their text direction does not affect the text around them.

       markup      `tag(name, *content, **attributes)`, and `name`
       parts       tiles, notices (a finding and advice), commands to copy, folded content
       tables      tables with search and sort, which are cards on a phone
       line_chart  lines and percentile bands over time, with gaps and marked times; sparklines
       heat_map    a strip of colours over time for each row
       findings    grouped findings, with the first of each group and the number of the others
       decoded     values of findings in words: magic codes, times, sizes
       history     the newest archive runs of a lake

3. Put the elements into sections, and the sections into a `page.Page`: a title, a verdict (a kind and one sentence),
   facts (lake, broker, period), sections. `page.write_page` writes it. With `output.failure_page`, a job that fails
   also writes a page, so that an older page is not taken for its result.

`page.css` and `page.js` are the style and the script of all pages. No page has styles or scripts of its own, because
the Content-Security-Policy allows only these two, by their digests. Without the script, pages still show all content.
"""
