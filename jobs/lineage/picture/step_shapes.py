"""Shapes of steps: each kind has its own shape and colour, so kinds can be distinguished without colours.

A shape is drawn around 0,0, some 12 pixels wide, in `currentColor`; page.css has the colours.
"""

from __future__ import annotations

from collections.abc import Iterable

from commitlake.jobs.report.html_elements import tag
from commitlake.pipelines.lineage.message_history import Step, StepKind
from commitlake.schemas.report import Html

FOLDED = "folded"
FAILED = "failed"
BEGUN = "begun"
_BACK = "shape-back"


def _clock_hand_html() -> Html:
    return tag("path", d="M0,-3V0H2.6", class_="shape-line")


_RING = tag("circle", r=4.6, class_=f"shape-line {_BACK}")
_SHAPES = {
    StepKind.NORMAL: (tag("circle", r=5.2, class_="shape"), "message"),
    StepKind.DELAY: (_RING + _clock_hand_html(), "waits (delay level)"),
    StepKind.RETRY: (tag("path", d="M0,-5.8L5.6,4.4H-5.6z", class_="shape"), "retry"),
    StepKind.DLQ: (
        tag("rect", x=-5.2, y=-5.2, width=10.4, height=10.4, rx=1.5, class_="shape")
        + tag("path", d="M-2.6,-2.6L2.6,2.6M2.6,-2.6L-2.6,2.6", class_="shape-cut"),
        "dead letter",
    ),
    StepKind.HALF: (_RING + tag("path", d="M0,-4.6A4.6,4.6 0 0 0 0,4.6z", class_="shape"), "half message"),
    StepKind.OP: (tag("path", d="M0,-5.8L5.8,0L0,5.8L-5.8,0z", class_="shape"), "end of a transaction"),
    StepKind.TRACE: (tag("circle", r=3, class_="shape"), "trace"),
    StepKind.TIMER: (_RING + _clock_hand_html() + tag("path", d="M-2,-6.6H2", class_="shape-line"), "waits (timer)"),
    StepKind.SYSTEM: (tag("rect", x=-4, y=-4, width=8, height=8, class_=f"shape-line {_BACK}"), "system"),
    StepKind.CONSUMPTION: (
        tag("circle", r=5.6, class_="shape") + tag("path", d="M-2.6,.2L-.7,2.2L2.8,-2", class_="shape-cut"),
        "consumed",
    ),
    StepKind.MISSING: (tag("circle", r=4.8, class_=f"shape-line shape-dashed {_BACK}"), "not in the lake"),
    FAILED: (
        tag("circle", r=5, class_=f"shape-line {_BACK}")
        + tag("path", d="M-2,-2L2,2M2,-2L-2,2", class_="shape-line"),
        "tried without success",
    ),
    BEGUN: (_RING + tag("circle", r=1.8, class_="shape"), "started; its end is not known"),
    FOLDED: (
        tag("circle", cx=-5, r=1.6, class_="shape") + tag("circle", r=1.6, class_="shape")
        + tag("circle", cx=5, r=1.6, class_="shape"),
        "folded steps",
    ),
}  # fmt: skip

_EDGE_LOOKS = {
    "retried": "bad", "dead": "dead", "given_up": "dead", "delayed": "wait", "timer": "wait",
    "replayed": "again", "redriven": "again", "consumed": "client", "produced": "client", "ended": "client",
    "recalled": "client",
}  # fmt: skip


def glyph_name_of(step: Step) -> str:
    """Return the name of the shape that stands for a step."""
    if step.consumption is None or step.consumption.succeeded:
        return step.kind
    return BEGUN if step.consumption.succeeded is None else FAILED


def glyph_meaning(glyph: str) -> str:
    """Return a shape's meaning in words."""
    return _SHAPES[glyph][1]


def edge_css_class(kind: str) -> str:
    """Return the CSS class for the line of an edge of a given kind."""
    return _EDGE_LOOKS.get(kind, "plain")


def glyph_definitions_html(glyphs: Iterable[str]) -> Html:
    """Return an invisible SVG element that defines shapes, which other SVG elements refer to."""
    shapes = (tag("g", Html(_SHAPES[glyph][0]), id=f"glyph-{glyph}") for glyph in glyphs)
    tip = tag("path", d="M-3.4,-11.5H3.4L0,-6.8z", class_="shape", id="glyph-tip")
    return tag("svg", tag("defs", *shapes, tip), class_="patterns", width=0, height=0, aria_hidden="true",
               focusable="false")  # fmt: skip


def glyph_html(name: str, x: str, y: str, *content: str, **attributes: str | float | bool | None) -> Html:
    """Return a shape at a position in an SVG, optionally with a title."""
    return tag("use", *content, href=f"#glyph-{name}", x=x, y=y, class_=f"glyph {name}", **attributes)


def glyph_legend_html(glyphs: Iterable[str]) -> Html:
    """Return a legend that explains shapes."""
    entries = (
        tag("li", tag("svg", glyph_html(name, "9", "9"), width=18, height=18, aria_hidden="true"), glyph_meaning(name))
        for name in glyphs
    )
    return tag("ul", *entries, class_="legend")
