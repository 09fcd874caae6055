"""What a Prometheus needs to watch vLLM: alert rules under the names that the releases give their metrics."""
