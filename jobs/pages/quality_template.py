"""What the page of a run's quality has besides every page: a module, so that it is found in a zip, too."""

from __future__ import annotations

from commitlake.jobs.pages.frame import page_template

_KINDS = {
    "good": ("#1d7a46", "#62c48d"),
    "warning": ("#8f5d00", "#e2ae4b"),
    "critical": ("#b3261e", "#f28b82"),
    "bar": ("#3d6fb4", "#7ba7e6"),
}
_STYLE = """
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); gap: .6rem; margin: 1rem 0; }
dl div { background: var(--card); border: 1px solid var(--line); border-radius: .4rem; padding: .6rem .8rem; }
dt { color: var(--quiet); font-size: .85rem; } dd { margin: 0; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
.topics td:nth-child(n+3), .topics th:nth-child(n+3) { text-align: right; white-space: nowrap; }
svg { display: block; width: 100%; height: 5rem; fill: var(--bar); border-bottom: 1px solid var(--line); }
td svg { width: 9rem; height: 1.5rem; margin-left: auto; }
summary { cursor: pointer; }
"""
_BODY = """
<dl>$tiles</dl>
<p class="quiet">Messages per 10 minutes of the brokers' clocks</p>
$picture
<h2>What is not as expected</h2>
$failed
<h2>Topics</h2>
<div class="wide"><table class="topics"><thead><tr><th>topic</th><th>broker</th><th>messages</th><th>log</th>
<th>queues</th><th>missing within windows</th>
<th>messages per window</th></tr></thead><tbody>$topics</tbody></table></div>
<h2>What is as expected</h2>
<details><summary>$met_count expectations are met</summary>
<div class="wide"><table><thead><tr><th>suite</th><th>expectation</th><th>severity</th></tr></thead>
<tbody>$met</tbody></table></div></details>
"""
PAGE = page_template(_KINDS, _STYLE, _BODY)
