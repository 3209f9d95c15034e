"""Logs as JSON: a line for each record, with the fields of the job that it is about."""

import json
import logging

import jobboard

FIELDS = ("job", "job_name", "who", "token")


class JSONFormatter(logging.Formatter):
    def format(self, record):
        told = {"level": record.levelname, "logger": record.name, "text": record.getMessage()}
        told |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told)


to_stderr = logging.StreamHandler()
to_stderr.setFormatter(JSONFormatter())
logging.basicConfig(level=logging.INFO, handlers=[to_stderr])

with jobboard.backend("pictures", "memory") as board:
    conductor = jobboard.Conductor(None, board)

    @conductor.handles("resize")
    def resize(job):
        raise jobboard.Reject("it names no picture")

    board.post("resize")
    conductor.run(max_dispatches=1)
