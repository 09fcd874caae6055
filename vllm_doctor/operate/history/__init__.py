"""What happened to the units of this host: a bounded store, and what can be read from it."""
