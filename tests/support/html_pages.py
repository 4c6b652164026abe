"""Parsed HTML pages, with their elements, tables and references."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = frozenset({"meta", "input", "br"})
_REFERENCES = re.compile(r"https?:|url\((?!#)|@import|<link|<img|<iframe|<object|<embed|<base|\bsrc=", re.IGNORECASE)


@dataclass(slots=True)
class Element:
    """An element of a page.

    Attributes:
        name: name of the tag.
        attributes: attributes by name.
        children: elements and texts inside it.
    """

    name: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Return all text of the element."""
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    @property
    def inner(self) -> list[Element]:
        """Return all elements within it, in order."""
        children = [child for child in self.children if isinstance(child, Element)]
        return [found for child in children for found in [child, *child.inner]]

    def all(self, name: str) -> list[Element]:
        """Return the elements with a name within it, in order."""
        return [one for one in self.inner if one.name == name]

    def of_class(self, name: str) -> list[Element]:
        """Return the elements with a class within it, in order."""
        return [one for one in self.inner if name in one.attributes.get("class", "").split()]

    def by_id(self, anchor: str) -> Element:
        """Return the single element with an id."""
        (found,) = [one for one in [self, *self.inner] if one.attributes.get("id") == anchor]
        return found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().name == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parse_page(text: str) -> Element:
    """Parse a page, in which every element must be closed, and return its root."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert len(reader.open) == 1
    return reader.open[0]


def table_of(element: Element) -> list[list[str]]:
    """Return the texts of the only table in an element, starting with its heading."""
    (table,) = element.all("table")
    rows = table.all("tr")
    return [[cell.text for cell in row.children if isinstance(cell, Element)] for row in rows]


def assert_self_contained(text: str) -> None:
    """Check that a page has no external references, and that its policy allows only its own style and script."""
    assert _REFERENCES.search(text) is None
    root = parse_page(text)
    (policy,) = [meta.attributes["content"] for meta in root.all("meta") if "http-equiv" in meta.attributes]
    for kind, name in (("style-src", "style"), ("script-src", "script")):
        (element,) = root.all(name)
        digest = base64.b64encode(hashlib.sha256(element.text.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    assert " style=" not in text
    assert not [name for one in root.inner for name in one.attributes if name.startswith("on")]
