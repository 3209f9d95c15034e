"""Sphinx's settings."""

from __future__ import annotations

import functools
import importlib
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

sys.path.insert(0, str(Path(__file__).parent))

project = "jobboard"
author = "the jobboard authors"
project_copyright = author
release = metadata.version("jobboard")
extensions = ["sphinx.ext.autodoc", "sphinx_copybutton", "sphinx_design"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"jobboard {release}"
html_static_path = ["static"]
html_css_files = ["jobboard.css"]
html_show_sourcelink = False
html_copy_source = False
# Both are readable on furo's background.
pygments_style = "friendly"
pygments_dark_style = "monokai"
# Prompts and outputs of console blocks are no part of a command.
copybutton_exclude = ".linenos, .gp, .go"

add_module_names = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
autodoc_default_options = {"members": True}
autodoc_type_aliases = {"Handler": "Handler"}
maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

nitpicky = True
nitpick_ignore_regex = [
    # Other projects' names have no entry here. A build needs no network, and so no inventory of theirs.
    ("py:.*", r"(?!jobboard\b).*"),
    # Type variables.
    ("py:(class|obj)", r"jobboard\.[\w.]+\.(_?[MPTW]|R_co)"),
    # Types that stand in signatures, and that users have no need of.
    ("py:class", r"jobboard\.backends\.BoardArguments|jobboard\.conductor\.poster\.Registering"),
    (
        "py:class",
        r"jobboard\.engine\.(engine\.Engine|Engine|outcomes\.StoredOutcome)|jobboard\.contrib\.figures\.\w+|jobboard\.orm\.rows\.Fenced",
    ),
    ("py:(mod|func)", r"jobboard\.states\.part"),
]

RETURNED = {
    "jobboard.board.JobBoard",
    "jobboard.board.JobBoardIterator",
    "jobboard.conductor.poster.Poster",
    "jobboard.job.Claim",
    "jobboard.job.Job",
    "jobboard.notifier.Notifier",
    "jobboard.results.Outcome",
    "jobboard.schedules.Schedule",
}
"""Classes that users do not call."""


@functools.cache
def located(path: str) -> Any:
    """Return the object with a dotted path, None if there is none."""
    words = path.split(".")
    for count in range(len(words), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(words[:count]))
            for word in words[count:]:
                # A package may import its members when they are asked for.
                found = getattr(found, word, None)
        except Exception:  # noqa: BLE001 - as without a driver, or with a Django that has no settings
            continue
        return found
    return None


def resolve(app: Sphinx, env: BuildEnvironment, node: Any, contnode: nodes.Element) -> nodes.Element | None:
    """Return a link to an object that is documented under another of its paths, as jobboard.Job is."""
    if node.get("refdomain") != "py" or not node["reftarget"].startswith("jobboard."):
        return None
    wanted = located(node["reftarget"])
    # Equal numbers and texts are not the same thing.
    if wanted is None or not hasattr(wanted, "__qualname__"):
        return None
    for name, entry in env.domains.python_domain.objects.items():
        if located(name) is wanted:
            return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, contnode, name)
    return None


def hide(app: Sphinx, what: str, name: str, *rest: Any) -> tuple[str, None] | None:
    """Leave out the arguments of classes that users do not call."""
    return ("", None) if name in RETURNED else None


def setup(app: Sphinx) -> None:
    from commands import CommandDirective

    app.add_directive("command", CommandDirective)
    app.connect("autodoc-process-signature", hide)
    app.connect("missing-reference", resolve)
