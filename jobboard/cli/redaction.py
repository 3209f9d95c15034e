"""Passwords of boards' URIs, blotted out of messages."""

from __future__ import annotations

import re

_SHORTEST = 3


def without_secrets(text: str, word: str | None) -> str:
    """Return ``text`` without the passwords in a word of the command line or the environment.

    A driver may quote its arguments in an error, and click a word that it does not understand.

    :param word: perhaps a URI, and perhaps a mistyped one.
    """
    for secret in _secrets(word or ""):
        # Without every "a" the text would be unreadable, and the secret would show all the same.
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, "***")
    return text


def _secrets(word: str) -> list[str]:
    """Return possible passwords in a word, the longest first, verbatim and in the forms that messages have."""
    from urllib.parse import unquote

    before, at, _ = word.rpartition("@")
    # A password may hold colons: it begins behind any of them. A user without a password is no secret.
    ends = (
        [] if not at or re.fullmatch("[^:]*://[^:]*", before) else [each.end() for each in re.finditer(":/*", before)]
    )
    found = [before[end:] for end in ends]
    found += re.findall(r"(?s)://([^/?#@]*:(?!\d+(?:[/?#,]|$)).*)", word)
    for end in ("[^&]*", ".*"):
        found += re.findall(rf"(?s)[?&]\w*(?:password|secret|token)\w*=({end})", word)
    if found:
        # A piece that is blotted out first could split this one, and leave its rest.
        found.append(word)
    forms = {form for each in found for text in (each, unquote(each)) for form in (text, repr(text)[1:-1])}
    return sorted(forms, key=len, reverse=True)
