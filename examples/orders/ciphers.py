"""The cipher of the board: Fernet keys by number, from the environment."""

import json
import os

from cryptography.fernet import Fernet

import jobboard


class Keys:
    """The newest key encrypts, and each one decrypts the jobs of its number."""

    def __init__(self, keys: dict[str, str]) -> None:
        self._keys = {int(number): Fernet(key) for number, key in keys.items()}
        self.number = max(self._keys)

    def encrypt(self, data: bytes) -> bytes:
        return self._keys[self.number].encrypt(data)

    def decrypt(self, number: int, data: bytes) -> bytes:
        if number not in self._keys:
            raise jobboard.NoKey(f"no key {number}")
        return self._keys[number].decrypt(data)


KEYS = Keys(json.loads(os.environ["ORDER_KEYS"]))
