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
  --good: #1d7a46; --repairable: #8f5d00; --damage: #b3261e; --info: #3d6fb4; }
@media (prefers-color-scheme: dark) {
  :root { --back: #16181b; --card: #1e2125; --text: #e7e8ea; --quiet: #9ba1aa; --line: #363b42;
    --good: #62c48d; --repairable: #e2ae4b; --damage: #f28b82; --info: #7ba7e6; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 70rem; padding: 1rem; background: var(--back); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; margin: .3rem 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 0 0 .3rem; } p { margin: .3rem 0; }
.quiet { color: var(--quiet); font-size: .88rem; }
header { border-left: .4rem solid var(--kind); padding-left: .8rem; }
.good { --kind: var(--good); } .repairable { --kind: var(--repairable); } .damage { --kind: var(--damage); }
.info { --kind: var(--info); }
article { background: var(--card); border: 1px solid var(--line); border-left: .25rem solid var(--kind);
  border-radius: .4rem; padding: .6rem .8rem; margin: .7rem 0; }
.badge { color: var(--kind); border: 1px solid var(--kind); border-radius: .3rem; padding: 0 .4rem; font-size: .8rem;
  font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: normal; }
th { color: var(--quiet); font-weight: 500; }
td bdi { display: inline-block; max-width: 26rem; overflow-wrap: anywhere; }
.stores td:nth-child(n+3), .stores th:nth-child(n+3) { text-align: right; white-space: nowrap; }
</style>
</head>
<body>
<header class="$kind"><h1>$verdict</h1><p class="quiet">$run</p></header>
<h2>Stores</h2>
<div class="wide"><table class="stores"><thead><tr><th>store</th><th>folder</th><th>segments</th><th>log</th>
<th>records</th><th>queues</th><th>index files</th><th>groups</th><th>damage</th><th>repairable</th><th>info</th></tr>
</thead><tbody>$stores</tbody></table></div>
<h2>What was found</h2>
$classes
</body>
</html>
""")
