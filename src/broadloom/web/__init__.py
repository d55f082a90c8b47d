"""Pages in the browser over a local cluster, a channel, tapes and the pipeline's tables.

Needs the extra `web`, which is imported only when pages are served. Start reading in `server.py`.
"""
