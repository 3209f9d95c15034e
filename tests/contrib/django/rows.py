"""A model of the tests, and a process that works on its rows."""

from __future__ import annotations

import sys
import uuid

from django.db import models

from jobboard.contrib.django.claimable import ClaimableModel

USING = "project"


class Picture(ClaimableModel):
    rank = models.IntegerField(default=0)
    done = models.BooleanField(default=False)
    worked_on = models.IntegerField(default=0)

    class Meta:
        app_label = "jobboard"


class Named(ClaimableModel):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)

    class Meta:
        app_label = "jobboard"


class Child(Picture):
    class Meta:
        app_label = "jobboard"


def left() -> models.QuerySet[Picture]:
    return Picture.objects.using(USING).filter(done=False).order_by("pk")


def work(who: str, stay: bool) -> None:
    """Batch after batch; one that stays takes the first and says so."""
    while left().exists():
        pictures = Picture.acquire(who, left(), limit=3, timeout=1 if stay else 60)
        if stay and pictures:
            print(*(each.pk for each in pictures), flush=True)
            sys.stdin.read()
        for each in pictures:
            each.done = True
            each.worked_on += 1
            each.save()
    print("done", flush=True)
