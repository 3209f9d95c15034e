"""Settings of the tests. Processes that tests start find the task backend in their environment."""

import json
import os
from importlib.util import find_spec

import pymysql

from tests.contrib.django import package

INSTALLED_APPS = ["jobboard.contrib.django"]
if package.NAME == "django_tasks":
    INSTALLED_APPS.append("django_tasks")
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}, "empty": {}}
if "DATABASE" in os.environ:
    DATABASES["project"] = json.loads(os.environ["DATABASE"])
    if find_spec("MySQLdb") is None:
        pymysql.install_as_MySQLdb()
DUMMY = {"default": {"BACKEND": package.DUMMY, "QUEUES": []}}
TASKS = json.loads(os.environ["TASKS"]) if "TASKS" in os.environ else DUMMY
USE_TZ = True
# As by default since Django 6.
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
