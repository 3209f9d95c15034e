"""MariaDB's own statements, put together from what ``compounds`` has.

``shortcuts`` are those of every verb, ``singles`` takes of one job; ``lists`` is what these do to the lists of scopes.
Where scopes are full ``openings`` finds what has room, past many jobs by the ``heads`` of their groups.
Where indexes are full of dead entries, takes go as ``skims``, which pass them, from the ``lows`` on.
"""
