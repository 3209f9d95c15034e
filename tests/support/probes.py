"""Probes of a process's health."""

import urllib.error
import urllib.request


def status(address: str, path: str) -> int:
    """Return the status of a GET."""
    try:
        with urllib.request.urlopen(f"{address}/{path}", timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
