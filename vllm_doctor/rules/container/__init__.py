"""What ends or stops a container before vLLM can say why: its runtime, its limits, its orchestrator."""
