"""A conductor with its metrics and its board's at http://localhost:9100/metrics. Stop it with Ctrl-C."""

import os

from prometheus_client import REGISTRY, start_http_server

import jobboard
from jobboard.contrib.prometheus import BoardCollector, ConductorMetrics

with jobboard.backend("pictures", "memory") as board:
    conductor = jobboard.Conductor(None, board)

    @conductor.handles("resize")
    def resize(job):
        print("resizing", job.details["path"])

    REGISTRY.register(BoardCollector(board))
    ConductorMetrics(REGISTRY).observe(conductor)
    server, _ = start_http_server(int(os.environ.get("PORT", "9100")))
    print(f"metrics are at http://localhost:{server.server_port}/metrics")

    board.post("resize", details={"path": "a.jpg"})
    board.post("resize", details={"path": "b.jpg"}, delay=3600)
    conductor.run()
