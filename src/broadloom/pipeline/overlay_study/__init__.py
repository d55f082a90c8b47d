"""Studies of the overlay itself: fabrics of up to ten million peers, grown, searched and broken, many at a time.

Reading order: `chance` (a seeded source of randomness), `ways` (how a newcomer finds its edges), `grow`, `search`
(distances) and `outlying` (from where), `parts` (what hangs together), `bounds` and `theory` (what to expect), `jobs`
(one fabric, its figures), `tasks` (many jobs at once), `frontier` (one fabric over many tasks), `answers`, `command`.
"""
