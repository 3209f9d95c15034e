import os

SECRET_KEY = os.environ.get("SECRET_KEY", "only for trying it out")
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
INSTALLED_APPS = ["jobboard.contrib.django"]
ROOT_URLCONF = "project.urls"
USE_TZ = True

TASKS = {
    "default": {
        "BACKEND": "jobboard.contrib.django.JobboardBackend",
        "OPTIONS": {"board": os.environ.get("JOBBOARD_URL", "sqlite:///jobs.db")},
    }
}
