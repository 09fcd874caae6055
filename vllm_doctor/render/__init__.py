"""Findings for people, programs and Prometheus."""
