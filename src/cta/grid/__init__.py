"""Plans of cells, and the one runner that makes them: on this machine, or on the machines of a Ray cluster.

    plan ─► cells ─► workspace (what is there) ─► runner (what is next) ─► engine ─► processes, ordinary `cta` commands

Files are the only state: a second start, after whatever ended the first one, continues with the rest.
"""
