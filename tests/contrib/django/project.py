"""The settings of the tests; of processes that they start, the environment has the tasks' backend."""

import json
import os

INSTALLED_APPS = ["jobboard.contrib.django"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}, "empty": {}}
DUMMY = {"default": {"BACKEND": "django.tasks.backends.dummy.DummyBackend", "QUEUES": []}}
TASKS = json.loads(os.environ["TASKS"]) if "TASKS" in os.environ else DUMMY
USE_TZ = True
