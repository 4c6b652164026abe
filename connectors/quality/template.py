"""The page around what `page` fills in: a module, so that it is found wherever the package is, in a zip, too."""

from __future__ import annotations

from string import Template

PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>$title</title>
<style>
:root { color-scheme: light dark; --back: #fbfbf9; --card: #fff; --text: #1c1e21; --quiet: #666b73; --line: #dcdedf;
  --bar: #3d6fb4; --good: #1d7a46; --warning: #8f5d00; --critical: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --back: #16181b; --card: #1e2125; --text: #e7e8ea; --quiet: #9ba1aa; --line: #363b42;
    --bar: #7ba7e6; --good: #62c48d; --warning: #e2ae4b; --critical: #f28b82; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 66rem; padding: 1rem; background: var(--back); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; margin: .3rem 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 0 0 .3rem; } p { margin: .3rem 0; }
.quiet { color: var(--quiet); font-size: .88rem; }
header { border-left: .4rem solid var(--kind); padding-left: .8rem; }
.good { --kind: var(--good); } .warning { --kind: var(--warning); } .critical { --kind: var(--critical); }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); gap: .6rem; margin: 1rem 0; }
dl div, article { background: var(--card); border: 1px solid var(--line); border-radius: .4rem; padding: .6rem .8rem; }
dt { color: var(--quiet); font-size: .85rem; } dd { margin: 0; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
article { border-left: .25rem solid var(--kind); margin: .7rem 0; }
.badge { color: var(--kind); border: 1px solid var(--kind); border-radius: .3rem; padding: 0 .4rem; font-size: .8rem;
  font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: normal; }
th { color: var(--quiet); font-weight: 500; }
td bdi { display: inline-block; max-width: 24rem; overflow-wrap: anywhere; }
.topics td:nth-child(n+3), .topics th:nth-child(n+3) { text-align: right; white-space: nowrap; }
svg { display: block; width: 100%; height: 5rem; fill: var(--bar); border-bottom: 1px solid var(--line); }
td svg { width: 9rem; height: 1.5rem; margin-left: auto; }
summary { cursor: pointer; }
</style>
</head>
<body>
<header class="$kind"><h1>$verdict</h1><p class="quiet">$run</p></header>
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
</body>
</html>
""")
