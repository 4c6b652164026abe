"""What the page of findings has besides every page: a module, so that it is found in a zip, too."""

from __future__ import annotations

from commitlake.jobs.pages.frame import page_template

_KINDS = {
    "good": ("#1d7a46", "#62c48d"),
    "repairable": ("#8f5d00", "#e2ae4b"),
    "damage": ("#b3261e", "#f28b82"),
    "info": ("#3d6fb4", "#7ba7e6"),
}
_STYLE = ".stores td:nth-child(n+3), .stores th:nth-child(n+3) { text-align: right; white-space: nowrap; }"
_BODY = """
<h2>Stores</h2>
<div class="wide"><table class="stores"><thead><tr><th>store</th><th>folder</th><th>segments</th><th>log</th>
<th>records</th><th>queues</th><th>index files</th><th>groups</th><th>damage</th><th>repairable</th><th>info</th></tr>
</thead><tbody>$stores</tbody></table></div>
<h2>What was found</h2>
$classes
"""
PAGE = page_template(_KINDS, _STYLE, _BODY)
