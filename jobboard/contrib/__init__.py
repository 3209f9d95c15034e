"""Bridges to other systems, one module each; a module asks for its own extra, and nothing else imports it."""
