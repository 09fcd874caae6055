"""What a start of vLLM will take of a card, before it runs.

The rooms, each of which imports only those before it: `model` (config.json to an architecture), `launch` (a command
line to settings with nothing left open), `terms` (one figure of the sum each), `support` (can this release run this at
all), `prediction` (the sum, its range, the outcome), `question` (what was asked, and what is known beforehand),
`advice` (what to change). `usage` reads a running server.
"""
