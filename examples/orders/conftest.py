"""The fixtures of jobboard, a key for the tests, and no real store."""

import json
import os

from cryptography.fernet import Fernet

# Before the modules are imported.
os.environ["ORDER_KEYS"] = json.dumps({"1": Fernet.generate_key().decode()})
os.environ["JOBBOARD_URL"] = "memory?keep_done=60"

pytest_plugins = ["jobboard.testing.fixtures"]
