"""SQLite's own statements: ``shortcuts``; and where groups are full, ``crowds`` tells which, and ``heads`` finds the
first jobs of the others."""
