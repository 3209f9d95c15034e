"""TaskFlow's own boards as what a move begins with: ``jobboard move taskflow+redis://…``.

Their stores are read and changed here by their keys, with the clients that TaskFlow makes, and not through TaskFlow's
board classes, which would lose jobs: to list a Redis or etcd board deletes a posting that can't be decoded; etcd's
consume and abandon read the owner and delete in two steps; a claim has no fence, so that a mover which is held up while
its claim runs out would take a job that a conductor works on. Here a job leaves in one atomic step of its server, and
only while nobody has claimed it. TaskFlow's claims are as atomic, so that a conductor either has the job or finds it
gone.
"""

from jobboard.contrib.taskflow.source.board import TaskFlowOrigin, fetch_source

__all__ = ["TaskFlowOrigin", "fetch_source"]
