"""PostgreSQL's own statements.

``shortcuts`` are those of every verb, made of ``parts``. Under limits ``limited`` chooses among the statements of
``entering``, and ``lanes`` looks beside full groups. On a board whose indexes are full of dead entries ``lookout`` has
takes look ``behind`` the ``floors``.
"""
