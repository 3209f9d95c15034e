"""Settings of the tests. Processes that tests start find the task backend in their environment."""

import json
import os
from importlib.util import find_spec

import pymysql

INSTALLED_APPS = ["jobboard.contrib.django"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}, "empty": {}}
if "DATABASE" in os.environ:
    DATABASES["project"] = json.loads(os.environ["DATABASE"])
    if find_spec("MySQLdb") is None:
        pymysql.install_as_MySQLdb()
DUMMY = {"default": {"BACKEND": "django.tasks.backends.dummy.DummyBackend", "QUEUES": []}}
TASKS = json.loads(os.environ["TASKS"]) if "TASKS" in os.environ else DUMMY
USE_TZ = True
