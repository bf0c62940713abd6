"""HTML → the text a reader sees, with BeautifulSoup on Python's own parser. Nothing is fetched, run or resolved."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bs4 import BeautifulSoup
from bs4.dammit import EncodingDetector
from bs4.element import NavigableString, Tag

from cacheblend.documents.document import DocumentError, Extract
from cacheblend.documents.limits import Limits, megabytes
from cacheblend.documents.text import decode, guess_warning

_UNSEEN = re.compile("script|style|nav|noscript|template|iframe|object|embed|svg|canvas|head|select|button")
_BLOCKS = re.compile(
    "address|article|aside|blockquote|body|center|dl|details|div|fieldset|figcaption|figure|footer|form|h[1-6]"
    "|header|hr|html|main|ol|p|pre|section|summary|table|ul"
)
_HIDING_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_BREAK = "\n"


def parse_html(name: str, data: bytes, limits: Limits) -> Extract:
    """Return the title and the visible text; scripts, styles, navigation and hidden elements are left out."""
    if len(data) > limits.max_markup_bytes:
        limit = megabytes(limits.max_markup_bytes)
        raise DocumentError(f"{name} is {megabytes(len(data))} of HTML; the limit is {limit}: save its text instead.")
    markup, guess = decode(name, data, EncodingDetector.find_declared_encoding(data, is_html=True))
    soup = BeautifulSoup(markup, "html.parser")
    title = " ".join(soup.title.get_text().split()) if soup.title else ""
    body = visible_text(soup)
    text = body if body.startswith(title) else f"{title}\n\n{body}"
    return Extract(text=text, warnings=guess_warning(guess))


def visible_text(root: Tag) -> str:
    """Return the text under a tag, blocks on lines of their own and one blank line between them."""
    lines = (line.rstrip() for line in "".join(_pieces(root)).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _pieces(root: Tag) -> Iterator[str]:
    """Yield strings and line breaks in reading order, on a stack of our own: nesting in a page has no bound."""
    stack: list[tuple[Tag | NavigableString | str, bool]] = [(root, False)]
    while stack:
        node, is_preformatted = stack.pop()
        if isinstance(node, Tag):
            inside = is_preformatted or node.name == "pre"
            stack.extend((piece, inside) for piece in reversed(_inside(node)))
        elif not isinstance(node, NavigableString):
            yield node
        elif type(node) is NavigableString:  # its subclasses are comments, declarations, scripts and styles
            yield str(node) if is_preformatted else re.sub(r"\s+", " ", node)


def _inside(tag: Tag) -> list[Tag | NavigableString | str]:
    """Return what a tag contributes: its children, between the breaks that its kind stands for."""
    if _is_unseen(tag):
        return []
    children: list[Tag | NavigableString | str] = [
        child for child in tag.contents if isinstance(child, Tag | NavigableString)
    ]
    if tag.name in ("td", "th"):
        return [*children, " | "] if tag.find_next_sibling(("td", "th")) else children
    if tag.name in ("br", "tr", "li", "dt", "dd"):
        return [_BREAK, *children]
    return [2 * _BREAK, *children, 2 * _BREAK] if _BLOCKS.fullmatch(tag.name) else children


def _is_unseen(tag: Tag) -> bool:
    if _UNSEEN.fullmatch(tag.name) or tag.has_attr("hidden") or tag.get("aria-hidden") == "true":
        return True
    return bool(_HIDING_STYLE.search(str(tag.get("style", ""))))
