"""MariaDB's own statements: ``shortcuts``; and where indexes are full of dead entries, takes as ``skims``, which pass
them, from the ``lows`` on."""
