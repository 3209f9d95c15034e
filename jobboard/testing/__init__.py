"""What the tests of jobboard run on: real servers, a proxy that loses requests or replies.

Nothing in the library imports this package. Authors of other backends may use it in tests of their
own.
"""
