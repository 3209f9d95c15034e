"""A Django project with the page of a board in its admin, under /admin/jobs/, for its staff.

The view calls the ASGI application, so that the project may run on a WSGI server.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import django
from asgiref.sync import async_to_sync
from django.conf import settings

settings.configure(
    SECRET_KEY=os.environ.get("SECRET_KEY", "only for trying it out"),
    ALLOWED_HOSTS=["localhost", "127.0.0.1"],
    ROOT_URLCONF=__name__,
    USE_TZ=True,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("DATABASE", "project.db")}},
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.messages",
        "django.contrib.sessions",
    ],
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
)
django.setup()

from django.contrib import admin  # noqa: E402
from django.contrib.admin.views.decorators import staff_member_required  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.http import HttpRequest, HttpResponse  # noqa: E402
from django.urls import path, re_path  # noqa: E402
from django.views.decorators.csrf import csrf_exempt  # noqa: E402

from jobboard.web import app  # noqa: E402

ROOT = "/admin/jobs"


def authorize(request: Any) -> Any:
    """Let superusers act and other staff look."""
    user = request.scope["user"]
    return ("act", user.get_username()) if user.is_superuser else "look"


page = app(("jobboard", os.environ.get("JOBBOARD_URL", "sqlite:///jobs.db")), authorize=authorize)


@csrf_exempt  # the forms of the page have tokens of their own
@staff_member_required
def jobs(request: HttpRequest, path: str) -> HttpResponse:
    """Answer a request to the page."""
    return async_to_sync(_answer)(request)


async def _answer(request: HttpRequest) -> HttpResponse:
    scope = {
        "type": "http",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": request.path.encode(),
        "root_path": ROOT,
        "query_string": request.META["QUERY_STRING"].encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in request.headers.items()],
        "user": request.user,
    }
    response = HttpResponse()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": request.body}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            response.write(message.get("body", b""))
            return
        response.status_code = message["status"]
        for name, value in message["headers"]:
            if name == b"set-cookie":
                response.cookies.load(value.decode())
            else:
                response[name.decode()] = value.decode()

    await page(scope, receive, send)
    return response


urlpatterns = [re_path(r"^admin/jobs/(?P<path>.*)$", jobs), path("admin/", admin.site.urls)]
application = get_wsgi_application()

if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
