"""Sphinx's settings."""

from importlib import metadata

from jobboard import board, job

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


def is_internal(app: object, what: str, name: str, member: object, skip: bool, options: object) -> bool | None:
    """Leave out the members of boards, jobs and claims that users have no need of."""
    module = getattr(getattr(member, "fget", member), "__module__", None)
    inner = {"jobboard.board": board.INTERNAL, "jobboard.job": job.INTERNAL}
    return True if name in inner.get(module, ()) else None


def setup(app: object) -> None:
    app.connect("autodoc-skip-member", is_internal)
