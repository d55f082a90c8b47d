"""Applications over channels and groups: what people use. Each is a folder of its own, and none knows another."""
