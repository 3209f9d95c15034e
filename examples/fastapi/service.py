"""A web service that posts reports to be written; with WORKS=here it writes them, too."""

import contextlib
import os
from collections.abc import AsyncIterator

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from reports import board, conductor, report

import jobboard


class Wanted(BaseModel):
    customer: str
    pages: int = 1


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(board)
        if os.environ.get("WORKS") == "here":
            await stack.enter_async_context(conductor)  # beside the service, on the same loop
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/reports", status_code=202)
async def add_report(wanted: Wanted) -> dict[str, str]:
    # Posted by calling: its arguments are checked against the function's signature before anything is written.
    job = await report.post(**wanted.model_dump())
    return {"job": job.uuid}


@app.get("/reports/{uuid}")
async def show_report(uuid: str) -> dict[str, str | None]:
    try:
        job = await board.get(uuid)
    except jobboard.NotFound:
        return {"state": "COMPLETE", "error": None}  # what is done is off the board
    return {"state": job.seen_state, "error": job.error}


@app.delete("/reports/{uuid}")
async def cancel_report(uuid: str) -> dict[str, str]:
    try:
        await board.cancel(await board.get(uuid))
    except jobboard.UnclaimableJob as error:
        raise HTTPException(409, "it is being written") from error
    except jobboard.NotFound as error:
        raise HTTPException(404, "there is no such report to be written") from error
    return {"state": "TRASHED"}
