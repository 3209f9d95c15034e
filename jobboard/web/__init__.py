"""The page for people: the jobs of boards in a browser, and acts on them. Needs the extra ``web``."""

from jobboard.web.application import app

__all__ = ["app"]
