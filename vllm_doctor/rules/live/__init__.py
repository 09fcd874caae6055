"""What only a running host shows: servers that do not answer, processes left behind, units that keep restarting."""
