"""One server with several engines, each a process of its own: one of them becomes ready, and another failed."""

from tests.log.judging import judged_text

SAME_SERVER = """\
(APIServer pid=1) INFO 11-20 10:00:00 [api_server.py:1212] vLLM API server version 0.18.0
(EngineCore pid=514) INFO 11-20 10:00:06 [core.py:103] Initializing a V1 LLM engine (v0.18.0) with config: model='m'
(EngineCore pid=514) ERROR 11-20 10:00:09 [core.py:700] Traceback (most recent call last):
(EngineCore pid=514) ERROR 11-20 10:00:09 [core.py:700]   File "/x/site-packages/triton/runtime/build.py", line 32, in b
(EngineCore pid=514) ERROR 11-20 10:00:09 [core.py:700]     raise RuntimeError(
(EngineCore pid=514) ERROR 11-20 10:00:09 [core.py:700] RuntimeError: Failed to find C compiler. Please specify via CC
(APIServer pid=1) INFO 11-20 10:00:10 [rooms.py:7] the second engine starts
(EngineCore pid=884) INFO 11-20 10:00:16 [core.py:103] Initializing a V1 LLM engine (v0.18.0) with config: model='m'
(EngineCore pid=884) INFO 11-20 10:00:19 [core.py:281] init engine (profile, create kv cache, warmup model) took 0.42 \
seconds
(APIServer pid=1) INFO 11-20 10:00:20 [rooms.py:7] the second engine is ready
"""


def test_another_engine_that_is_ready_does_not_make_the_first_one_so() -> None:
    judged = judged_text(SAME_SERVER)
    assert judged.findings[0].code == "VD514"


def test_the_same_process_that_is_ready_got_over_it() -> None:
    assert not judged_text(SAME_SERVER.replace("pid=884", "pid=514")).findings
