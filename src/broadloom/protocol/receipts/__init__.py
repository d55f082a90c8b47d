"""Receipts: an author learns which members have a message.

A message sent with a receipt has a flag in its frame. Each member that delivers it signs a report, which travels back
link by link the way the message came. A report says how far the member is, so one report covers many messages, and the
newest one of each member is enough: reports can be repeated, merged and sent along any path without claiming too much.
Nothing is sent for messages without the flag.
"""
