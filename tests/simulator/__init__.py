"""A simulator of boards: processes, a server and a network in one process, in an order that a seed decides."""
