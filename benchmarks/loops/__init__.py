"""Programs with loops, writes and recurrences, each written once for livegrad and once for each peer.

A file holds programs of one kind; `catalogue.py` lists them all, `rows.py` makes the rows of `./bench loops`."""
