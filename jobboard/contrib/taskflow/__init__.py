"""The bridge to OpenStack TaskFlow; needs the extra ``taskflow``.

``board`` and ``job`` are what TaskFlow's engines, conductors and listeners see, ``options`` takes their configuration,
``encoding`` what they put into details. TaskFlow finds the boards by the entry points in ``taskflow.jobboards``::

    board = taskflow.jobs.backends.fetch('octavia', {'board': 'jobboard-redis', 'host': 'redis1'}, persistence=books)
"""
