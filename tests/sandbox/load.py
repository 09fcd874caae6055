"""Load for the sandbox, run on the host: load.py REQUESTS AT_ONCE PROMPT_CHARS MAX_TOKENS [same]

0 REQUESTS are requests without end. The sandbox's tokenizer makes a token of each character.
"""

import itertools
import json
import random
import string
import sys
import threading
import urllib.request

URL = "http://127.0.0.1:8000"


def ask(model: str, prompt: str, tokens: int) -> None:
    body = {"model": model, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    request = urllib.request.Request(
        f"{URL}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as answer:
        answer.read()


def main() -> None:
    count, at_once, length, tokens = map(int, sys.argv[1:5])
    same = sys.argv[5:] == ["same"]
    with urllib.request.urlopen(f"{URL}/v1/models", timeout=300) as answer:
        model = json.load(answer)["data"][0]["id"]
    chance = random.Random(7)
    prompts = ("".join(chance.choices(string.ascii_lowercase, k=length)) for _ in itertools.count())
    left = itertools.islice(itertools.repeat(next(prompts)) if same else prompts, count or None)
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                prompt = next(left, None)
            if prompt is None:
                return
            ask(model, prompt, tokens)

    threads = [threading.Thread(target=work) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


main()
