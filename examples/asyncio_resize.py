"""A conductor on an event loop, and what it is to work on: run it, and stop it with Ctrl-C."""

import asyncio

from jobboard.aio import AsyncConductor, fetch

board = fetch("pictures", "sqlite:///pictures.db")
conductor = AsyncConductor(None, board, max_simultaneous_jobs=1000)


@conductor.handles("resize")
async def resize(*, path: str, width: int = 100) -> None:
    await asyncio.sleep(0.1)  # a service is asked, say
    await notify.post(text=f"{path} is {width} pixels wide")


@conductor.handles("notify")
def notify(job, *, text: str) -> None:
    print(f"attempt {job.attempts}: {text}")  # in a thread


async def main() -> None:
    async with board:
        await asyncio.gather(*(resize.post(path=f"{number}.jpg") for number in range(10)))
        await conductor.run()
    print(conductor.tally)


if __name__ == "__main__":
    asyncio.run(main())
