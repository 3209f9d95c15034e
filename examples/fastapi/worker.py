"""Writes the reports. Start as many as you like, on as many machines as see the folder; SIGTERM stops one."""

import asyncio
import logging

from reports import conductor

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(conductor.run())
