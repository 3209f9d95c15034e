"""TaskFlow's own boards as origins of a move: ``jobboard move taskflow+redis://…``.

A move reads and changes their stores by their keys, with the clients that TaskFlow makes. TaskFlow's own board classes
would lose jobs:

- listing a Redis or etcd board deletes a posting that can't be decoded;
- etcd's consume and abandon read the owner, and delete in a second step;
- claims have no fence, so that a mover whose claim has lapsed would take a job that a conductor works on.

Here a job leaves in one atomic step of its server, and only while nobody has claimed it. TaskFlow's claims are atomic,
too, so that a conductor either has the job or finds it gone.
"""

from jobboard.contrib.taskflow.source.board import TaskFlowOrigin, fetch_source

__all__ = ["TaskFlowOrigin", "fetch_source"]
