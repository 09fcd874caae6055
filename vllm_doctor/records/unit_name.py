"""How a unit is named."""


def service(name: str) -> str:
    """The whole name: who types vllm@main means vllm@main.service."""
    return name if name.endswith(".service") else f"{name}.service"
