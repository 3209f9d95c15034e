"""Django tells only apps with this module that tables are to be made; the boards' tables are no models of its own."""
