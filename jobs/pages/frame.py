"""What every page of ours has: one file without scripts or anything from elsewhere, in the reader's light or dark."""

from __future__ import annotations

from collections.abc import Mapping
from string import Template

_FRAME = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>$title</title>
<style>
:root {{ color-scheme: light dark; --back: #fbfbf9; --card: #fff; --text: #1c1e21; --quiet: #666b73; --line: #dcdedf;
  {light} }}
@media (prefers-color-scheme: dark) {{
  :root {{ --back: #16181b; --card: #1e2125; --text: #e7e8ea; --quiet: #9ba1aa; --line: #363b42;
    {dark} }}
}}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; max-width: 70rem; padding: 1rem; background: var(--back); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }}
h1 {{ font-size: 1.4rem; margin: .3rem 0; }} h2 {{ font-size: 1.1rem; margin: 2rem 0 .6rem; }}
h3 {{ font-size: 1rem; margin: 0 0 .3rem; }} p {{ margin: .3rem 0; }}
.quiet {{ color: var(--quiet); font-size: .88rem; }}
header {{ border-left: .4rem solid var(--kind); padding-left: .8rem; }}
{kinds}
article {{ background: var(--card); border: 1px solid var(--line); border-left: .25rem solid var(--kind);
  border-radius: .4rem; padding: .6rem .8rem; margin: .7rem 0; }}
.badge {{ color: var(--kind); border: 1px solid var(--kind); border-radius: .3rem; padding: 0 .4rem; font-size: .8rem;
  font-weight: 600; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-size: .88rem; font-variant-numeric: tabular-nums; }}
th, td {{ text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: normal; }}
th {{ color: var(--quiet); font-weight: 500; }}
td bdi {{ display: inline-block; max-width: 26rem; overflow-wrap: anywhere; }}
{style}
</style>
</head>
<body>
<header class="$kind"><h1>$verdict</h1><p class="quiet">$run</p></header>
{body}
</body>
</html>
"""


def page_template(kinds: Mapping[str, tuple[str, str]], style: str, body: str) -> Template:
    """A page to be filled in: `title`, `kind`, `verdict`, `run`, and what `body` names besides.

    Args:
        kinds: what a verdict or an article may be, as the name of its class; its colour in light and in dark.
        style: rules of this page alone.
        body: what stands below the verdict.
    """
    return Template(
        _FRAME.format(
            light=" ".join(f"--{kind}: {light};" for kind, (light, _) in kinds.items()),
            dark=" ".join(f"--{kind}: {dark};" for kind, (_, dark) in kinds.items()),
            kinds="\n".join(f".{kind} {{ --kind: var(--{kind}); }}" for kind in kinds),
            style=style.strip(),
            body=body.strip(),
        )
    )
