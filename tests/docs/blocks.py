"""The code blocks of a page, as Sphinx shows them, and the comments that say how to run them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sybil import Document
from sybil.parsers.rest.lexers import DirectiveInCommentLexer, DirectiveLexer

LANGUAGES = {
    "console": "the commands are run, and their output is compared",
    "python": "executed",
    "shell": "run by bash -e",
    "text": "not run, unless its class is output",
    **dict.fromkeys(["ini", "json", "toml", "yaml"], "parsed"),
    **dict.fromkeys(["diff", "docker", "dockerfile", "nginx", "promql", "rst", "sql", "systemd"], "shown"),
}
"""The languages of code blocks. ``sql`` of the class run is run."""

COMMENTS = ("stop", "skip", "backends", "environment")
FILE = re.compile(r"[\w./@-]*[\w@]\.\w+|Dockerfile|Makefile")
LITERAL = re.compile(r"^(?![ \t]*\.\. \S)(.*::)[ \t]*\n[ \t]*\n(?=[ \t]+\S)", re.MULTILINE)


class PageError(Exception):
    """A block that can't be run, or that did something else than its page says. ``line`` is the line of the page."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(line, message)
        self.line, self.message = line, message


@dataclass(frozen=True)
class Block:
    """A code block of a page.

    line: of its directive. first: the line of the page with its first line of code. stop: when to end what runs for
    ever. skip: the reason why it is not run.
    """

    language: str
    source: str
    line: int
    first: int
    classes: frozenset[str] = frozenset()
    caption: str | None = None
    stop: str | None = None
    skip: str | None = None

    @property
    def file(self) -> str | None:
        """The file to which the block is written."""
        return self.caption if self.caption and FILE.fullmatch(self.caption) else None


@dataclass
class Page:
    """The blocks of a page in their order, and its needs.

    backends: servers without which the page can't be run. environment: the environment of tox that runs it.
    """

    text: str
    blocks: list[Block] = field(default_factory=list)
    backends: list[str] = field(default_factory=list)
    environment: str = ""


def parse(text: str) -> Page:
    """Return the page of a text.

    :raises PageError: a block or a comment is none that the runner knows.
    """
    page = Page(text)
    document = Document(text, "page")
    regions = [*DirectiveLexer("code-block|sourcecode|code")(document)]
    regions += DirectiveInCommentLexer("invisible-code-block", arguments=".+")(document)
    regions += DirectiveInCommentLexer("|".join(COMMENTS))(document)
    end = 0
    stop = skip = None
    for region in sorted(regions, key=lambda region: region.start):
        if region.start < end:
            # A directive that another block shows.
            continue
        line = text.count("\n", 0, region.start) + 1
        directive, given = region.lexemes["directive"], (region.lexemes["arguments"] or "").strip()
        if directive == "backends":
            page.backends = given.split()
        elif directive == "environment":
            page.environment = given
        elif directive == "stop":
            stop = given
        elif directive == "skip":
            skip = _reason(line, given)
        else:
            end = region.end
            source = region.lexemes["source"]
            first = line + source.line_offset + 1
            options = region.lexemes["options"]
            classes, caption = frozenset(options.get("class", "").split()), options.get("caption")
            code = str(source).rstrip() + "\n"
            page.blocks.append(_checked(Block(given, code, line, first, classes, caption, stop, skip), directive))
            stop = skip = None
    if stop is not None or skip is not None:
        raise PageError(text.count("\n"), "a comment '.. stop:' or '.. skip:' stands before no block")
    _refuse_literals(text, regions)
    return page


def _reason(line: int, given: str) -> str:
    found = re.fullmatch(r'next "(.+)"', given)
    if not found:
        raise PageError(line, f'.. skip: {given}: write .. skip: next "reason"')
    return found[1]


def _checked(block: Block, directive: str) -> Block:
    if directive not in ("code-block", "invisible-code-block"):
        raise PageError(block.line, f".. {directive}:: is not run: write .. code-block::")
    if block.language not in LANGUAGES:
        known = ", ".join(sorted(LANGUAGES))
        raise PageError(block.line, f"the language {block.language!r} is unknown; known are {known}")
    return block


def _refuse_literals(text: str, regions: list[object]) -> None:
    """Refuse blocks after two colons, which no test runs."""
    for found in LITERAL.finditer(text):
        if not any(region.start <= found.start() < region.end for region in regions):  # type: ignore[attr-defined]
            line = text.count("\n", 0, found.start()) + 1
            raise PageError(line, f"{found[1].strip()}: a literal block is not run: write .. code-block::")


def compare(line: int, what: str, expected: str, got: str) -> None:
    """
    :raises PageError: an output is not as expected. ``what``: what has printed it, for the message.
    """
    if not matches(expected, got):
        shown = f"{indented(what)}\n" if what else ""
        raise PageError(line, f"the output differs\n{shown}expected:\n{indented(expected)}\ngot:\n{indented(got)}")


def matches(expected: str, got: str) -> bool:
    """Return whether an output is as expected.

    ``...`` stands for anything, a line with nothing else for any number of lines. Blanks stand for blanks.
    """
    pattern = "".join(
        {"...\n": r"(?:.*\n)?", "...": r".*"}.get(part, re.escape(part))
        for part in re.split(r"((?m:^)\.\.\.\n|\.\.\.)", _normal(expected))
    )
    return re.fullmatch(pattern, _normal(got), re.DOTALL) is not None


def _normal(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.splitlines()).strip("\n") + "\n"


def indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines())
