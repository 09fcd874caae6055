"""What vLLM, torch and NVIDIA say and support, by version: data and the code that reads it."""
