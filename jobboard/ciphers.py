"""Ciphers: the protocol of a user's cipher, and the encrypted parts of postings, notes and results.

An encrypted part is a text, ``<number of the key>:<base64>``, in every encoding of a store. A board that moves a job or
posts it again carries the text unread.
"""

from __future__ import annotations

import base64
import re
from typing import Any, NamedTuple, Protocol

import msgpack

from jobboard.exceptions import JobFailure, NoKey

MAX_NUMBER = 1_000_000
"""The highest number of a key."""

_SEALED = re.compile("([1-9][0-9]{0,6}):[A-Za-z0-9+/]*={0,2}")


class Cipher(Protocol):
    """The cipher of a board, for ``fetch(…, cipher=…)``. Any object with these members is one.

    The board calls the methods from several threads at once.
    """

    @property
    def number(self) -> int:
        """The number of the newest key, from 1 to 1,000,000: ``encrypt`` uses this key. A new key has a higher number
        than every earlier one. The board reads the number once, at ``fetch``."""

    def encrypt(self, data: bytes) -> bytes:
        """Return the data, encrypted with the newest key."""

    def decrypt(self, number: int, data: bytes) -> bytes:
        """Return the data of ``encrypt``, decrypted with the key of this number.

        :raises jobboard.NoKey: there is no such key. Every other exception counts as this one.
        """


class Sealed(NamedTuple):
    """An encrypted part that is carried unread, in the place of the details of a posting."""

    text: str


class Seal:
    """A checked cipher: it encrypts values of JSON's shape, and decrypts them.

    :raises TypeError, ValueError: the object is no cipher.
    """

    def __init__(self, cipher: Any) -> None:
        lacking = [name for name in ("number", "encrypt", "decrypt") if not hasattr(cipher, name)]
        lacking += [name for name in ("encrypt", "decrypt") if not callable(getattr(cipher, name, None))]
        if lacking or isinstance(cipher, type):
            what = "the class itself" if isinstance(cipher, type) else f"a {type(cipher).__name__}"
            raise TypeError(f"must be an object with number, encrypt() and decrypt(), not {what}")
        number = cipher.number
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"its number must be an int, not {type(number).__name__}")
        if not 1 <= number <= MAX_NUMBER:
            raise ValueError(f"its number is {number}: must be from 1 to {MAX_NUMBER:,}")
        self.number = int(number)
        self._cipher = cipher

    def close(self, value: Any) -> str:
        """Return a value as an encrypted part.

        :raises JobFailure: the cipher failed. The error holds nothing of the value or of the cipher's error, as its
            traceback may be stored with a job.
        :raises TypeError: the cipher returned no bytes.
        """
        try:
            data = self._cipher.encrypt(bytes(msgpack.packb(value)))
        except Exception as error:  # noqa: BLE001 - a user's object raises what it likes
            raise JobFailure(f"the cipher could not encrypt: {type(error).__name__}") from None
        if not isinstance(data, bytes):
            raise TypeError(f"the cipher's encrypt() must return bytes, not {type(data).__name__}")
        return f"{self.number}:{base64.b64encode(data).decode()}"

    def open(self, sealed: str) -> Any:
        """Return the value of an encrypted part.

        :raises NoKey: the cipher could not decrypt it. The error holds nothing of the cipher's, as in :meth:`close`.
        """
        number = number_of(sealed)
        try:
            return msgpack.unpackb(self._cipher.decrypt(number, base64.b64decode(sealed.partition(":")[2])))
        except Exception as error:  # noqa: BLE001 - a user's object raises what it likes
            why = "has no key" if isinstance(error, NoKey) else f"could not decrypt ({type(error).__name__})"
            raise NoKey(f"encrypted with key {number}, for which the board's cipher {why}") from None


def opened(sealed: str, seal: Seal | None) -> Any:
    """Return the value of an encrypted part.

    :raises NoKey: the board has no cipher, or not the key.
    """
    if seal is None:
        raise NoKey(f"encrypted with key {number_of(sealed)}, and the board was fetched without cipher=")
    return seal.open(sealed)


def is_sealed(text: str) -> bool:
    """Return whether a text is an encrypted part."""
    return _SEALED.fullmatch(text) is not None


def number_of(sealed: str) -> int:
    """Return the number of the key of an encrypted part."""
    return int(sealed.partition(":")[0])
