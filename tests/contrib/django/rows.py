"""Claimable models of the tests, and their rows in the database ``project``."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import models

from jobboard.contrib.django.claimable import ClaimableModel

USING = "project"


class Picture(ClaimableModel):
    rank = models.IntegerField(default=0)
    done = models.BooleanField(default=False)

    class Meta:
        app_label = "jobboard"


class Named(ClaimableModel):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)

    class Meta:
        app_label = "jobboard"


class Child(Picture):
    class Meta:
        app_label = "jobboard"


class Seen(Picture):
    class Meta:
        app_label = "jobboard"
        proxy = True


class Detail(ClaimableModel):
    picture = models.OneToOneField(Picture, models.CASCADE, primary_key=True)

    class Meta:
        app_label = "jobboard"


class Numbered(Picture):
    number = models.IntegerField(primary_key=True)
    whole = models.OneToOneField(Picture, models.CASCADE, parent_link=True)

    class Meta:
        app_label = "jobboard"


class Present(models.Manager):
    def get_queryset(self) -> models.QuerySet:
        return super().get_queryset().filter(gone=False)


class Page(ClaimableModel):
    """A model whose first manager is not ``objects``, and with columns that change by themselves."""

    gone = models.BooleanField(default=False)
    changed = models.DateTimeField(auto_now=True)

    everything = models.Manager()
    objects = Present()

    class Meta:
        app_label = "jobboard"


class Sheet(ClaimableModel):
    """A model without ``objects``."""

    sheets = models.Manager()

    class Meta:
        app_label = "jobboard"


class Tag(models.Model):
    picture = models.ForeignKey(Picture, models.CASCADE, related_name="tags")

    class Meta:
        app_label = "jobboard"


MODELS = (Picture, Named, Detail, Child, Numbered, Page, Sheet, Tag)


def pictures(count: int) -> list[Picture]:
    return [Picture.objects.using(USING).create(rank=number) for number in range(count)]


def acquire(who: str, *args: Any, **options: Any) -> list[Picture]:
    return Picture.acquire(who, *args, using=USING, **options)


def stored(row: Picture) -> Picture:
    return Picture.objects.using(USING).get(pk=row.pk)


def left() -> models.QuerySet[Picture]:
    return Picture.objects.using(USING).filter(done=False).order_by("pk")
