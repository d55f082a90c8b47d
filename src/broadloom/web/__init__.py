"""Pages over all of it: a lab, a channel, tapes and the tables of the pipeline, in a browser.

Needs the extra `web`. Nothing here is imported before a page is wanted. See `serve.py`.
"""
