"""Debug variables for a while: a drop-in that a timer of systemd's own takes away."""
