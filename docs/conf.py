"""Sphinx's settings."""

from importlib import metadata

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
