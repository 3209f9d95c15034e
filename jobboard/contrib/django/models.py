"""An empty module: Django lets only apps with models create tables, here the tables of boards."""
