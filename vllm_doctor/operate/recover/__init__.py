"""The emergency measure made safe: stop one unit whole, free what it left on its GPUs, start it with less."""
