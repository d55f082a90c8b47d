"""Direct requests: one member asks another over a direct connection, without the fabric in between."""
