"""`tern broker` and `tern relay`."""
