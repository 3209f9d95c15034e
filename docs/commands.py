"""The directive ``command``: the arguments and options of a command of jobboard, as click knows them."""

from __future__ import annotations

import re

import click
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from jobboard.cli.root import root

EVERYWHERE = {"--board", "--name", "--json", "--help"}
"""The options of every command, which the page describes once."""


class CommandDirective(SphinxDirective):
    """``.. command:: trash list``."""

    required_arguments = 1
    optional_arguments = 9

    def run(self) -> list[nodes.Node]:
        command: click.Command = root
        context = click.Context(root, info_name="jobboard")
        for word in self.arguments:
            assert isinstance(command, click.Group)
            found = command.get_command(context, word)
            assert found is not None, f"there is no command {word!r}"
            command, context = found, click.Context(found, info_name=word, parent=context)
        usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        rows = [record for each in command.get_params(context) if (record := each.get_help_record(context))]
        rows = [(name, text) for name, text in rows if not EVERYWHERE & set(re.findall(r"--[\w-]+", name))]
        lines = [".. code-block:: text", "", f"    {usage}", ""]
        if rows:
            lines += [".. list-table::", "   :widths: 40 60", ""]
        for name, text in rows:
            lines += [f"   * - ``{name}``", f"     - {escaped(text)}"]
        return self.parse_text_to_nodes("\n".join(lines) + "\n")


def escaped(text: str) -> str:
    """Return a help text as reStructuredText."""
    return re.sub(r"([*`|\\]|_\b)", r"\\\1", " ".join(text.split()))
