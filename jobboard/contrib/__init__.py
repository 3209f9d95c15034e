"""Bridges to other libraries, one module or package for each, with an extra of its own. Nothing else imports them."""
