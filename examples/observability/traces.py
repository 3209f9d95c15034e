"""The spans of a request, of the job that it posts, and of the work on that; printed as JSON."""

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

import jobboard
from jobboard.contrib.opentelemetry import instrument

# In production it is a BatchSpanProcessor, and an exporter to your collector.
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=lambda span: span.to_json(None) + "\n")))
trace.set_tracer_provider(provider)

with jobboard.backend("pictures", "memory") as board:
    conductor = jobboard.Conductor(None, board)

    @conductor.handles("resize")
    def resize(job):
        with trace.get_tracer("pictures").start_as_current_span("scale down"):
            pass

    instrument(conductor)
    with trace.get_tracer("shop").start_as_current_span("GET /order"):
        board.post("resize")
    conductor.run(max_dispatches=1)
