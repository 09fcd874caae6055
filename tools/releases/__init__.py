"""What a vLLM release is made of, read from its wheel without running any of it; see tools/release.py."""
