"""A stand-in for vLLM: the same words, routes, signals and log lines, and no model. See tests/stub_vllm/README.md."""
