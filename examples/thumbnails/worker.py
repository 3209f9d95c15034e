"""Makes the thumbnails. Start as many as you like, on as many machines as see the images; SIGTERM stops one."""

import logging

from common import BOARD, IMAGES, THUMBNAILS, store
from ppm import shrink

import jobboard

conductor = jobboard.Conductor(None, BOARD, max_simultaneous_jobs=2)


@conductor.handles("thumbnail")
def make_thumbnail(job):
    file = f"{job.details['image']}.ppm"
    picture = (IMAGES / file).read_bytes()
    try:
        small = shrink(picture, job.details["width"])
    except ValueError as error:
        raise jobboard.Reject(str(error)) from error  # to the trash: the next try would fail just so
    store(THUMBNAILS / file, small)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    conductor.run()
