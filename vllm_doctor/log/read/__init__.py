"""From bytes to the lines of the last run: windows, prefixes, broken lines, order, servers, runs."""
