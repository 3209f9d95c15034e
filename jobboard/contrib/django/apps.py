"""What ``INSTALLED_APPS`` leads to."""

from django.apps import AppConfig


class JobboardConfig(AppConfig):
    name = "jobboard.contrib.django"
    label = "jobboard"
    verbose_name = "Jobboard"
