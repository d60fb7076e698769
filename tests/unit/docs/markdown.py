"""What tests ask of a Markdown document: sections, fenced blocks, rows of tables, links, names in backticks."""

import re
from typing import NamedTuple

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")


class Block(NamedTuple):
    """A fenced block: its language and its text."""

    language: str
    text: str


def section(document: str, title: str) -> str:
    """What stands under `## title`. A line of a program may begin with '## ', but not in a document of ours."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", document, re.MULTILINE | re.DOTALL)
    assert found, f"there is no section {title}"
    return str(found[1])


def blocks(document: str) -> list[Block]:
    return [Block(language, text) for language, text in _FENCE.findall(document)]


def links(document: str) -> list[str]:
    """Targets within the project."""
    return [target for target in _LINK.findall(document) if "://" not in target]


def code(document: str) -> list[str]:
    """What stands in backticks, outside of blocks."""
    return _CODE.findall(_FENCE.sub("", document))


def rows(document: str, first_header: str) -> list[list[str]]:
    """The rows of every table whose first column is called so, as cells without backticks around them."""
    found: list[list[str]] = []
    inside = False
    for line in document.splitlines():
        cells = [cell.strip().strip("`").replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not line.startswith("|"):
            inside = False
        elif cells[0] == first_header:
            inside = True
        elif inside and not set(cells[0]) <= {"-", ":"}:
            found.append(cells)
    return found
