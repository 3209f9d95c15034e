"""Sphinx's settings, and a directive that writes the options of a backend from their declarations."""

from importlib import metadata
from typing import ClassVar

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

project = "jobboard"
author = "the jobboard authors"
project_copyright = author
release = metadata.version("jobboard")
extensions = ["sphinx.ext.autodoc", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {"description": "Work that must not be lost", "fixed_sidebar": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_type_aliases = {"Handler": "Handler"}
nitpicky = False


class BackendOptions(SphinxDirective):
    """``.. backend-options:: sqlite``: what this backend's entry point declares beside the common options;
    ``common`` for those."""

    required_arguments = 1
    final_argument_whitespace = False
    option_spec: ClassVar[dict] = {}

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        (point,) = metadata.entry_points(group="jobboard.backends", name="memory" if name == "common" else name)
        board = point.load()
        options = board._common if name == "common" else board.options
        lines = [".. list-table::", "   :header-rows: 1", "   :widths: 20 20 60", ""]
        lines += ["   * - option", "     - default", "     - what it is"]
        for option, declared in options.items():
            nothing = declared.default is None or declared.default in ("", ())
            default = "" if nothing else f"``{_as_written(declared.default)}``"
            lines += [f"   * - ``{option}``", f"     - {default}", f"     - {declared.help}"]
        return self.parse_text_to_nodes("\n".join(lines)) if hasattr(self, "parse_text_to_nodes") else self._old(lines)

    def _old(self, lines: list[str]) -> list[nodes.Node]:
        node = nodes.Element()
        self.state.nested_parse(StringList(lines, source=""), self.content_offset, node)
        return node.children


def _as_written(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.decode()
    return f"{value:g}" if isinstance(value, float) else value


def setup(app) -> None:
    app.add_directive("backend-options", BackendOptions)
