"""The flowchart: one rule is one .py and one .md."""
