"""Takes images in and hands thumbnails out; the work between is left to whoever claims it."""

import hashlib

from common import BOARD, IMAGES, THUMBNAILS, store
from flask import Flask, request, send_from_directory

import jobboard

app = Flask(__name__)
app.config["MAX_CONTENT_LENGTH"] = 16 * 1024 * 1024
BOARD.connect()


@app.post("/images")
def add_image():
    data = request.get_data()
    image = hashlib.sha256(data).hexdigest()
    # Before the post: a worker may be quicker than this function.
    store(IMAGES / f"{image}.ppm", data)
    # The key: an image that is sent twice is work for one.
    job = BOARD.post("thumbnail", details={"image": image, "width": 64}, key=image, max_attempts=5)
    return {"job": job.uuid, "image": image}, 202


@app.get("/jobs/<uuid>")
def show_job(uuid):
    try:
        return {"state": BOARD.get(uuid).seen_state}
    except jobboard.NotFound:
        return {"state": jobboard.State.COMPLETE}  # what is done is off the board


@app.get("/thumbnails/<image>")
def show_thumbnail(image):
    return send_from_directory(THUMBNAILS, f"{image}.ppm", mimetype="image/x-portable-pixmap")
