"""SQL that the board and its relatives share: what differs per database, and statements that run cheaply."""
