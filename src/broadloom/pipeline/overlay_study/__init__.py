"""Studies of overlays of up to ten million peers: grown, searched and broken as graphs, many at a time.

Reading order: `random_source`, `join_strategies` (how a joiner chooses its edges), `grow`, `bfs` (distances) and
`peripheral_peers` (where to search from), `components`, `theory` (expected values), `jobs` (one overlay),
`executors` (many jobs at once), `distributed_bfs` (one overlay over many tasks), `summary`, `run`.
"""
