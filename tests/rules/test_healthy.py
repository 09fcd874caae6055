"""What shows that an engine worked, beside uvicorn's answers: a batch's bar, Ray Serve's log, a trainer, a client."""

import pytest

from tests.log.judging import judged_text
from vllm_doctor.records.verdict import Verdict

OK, UNKNOWN = Verdict.OK, Verdict.UNKNOWN
STARTED = "(EngineCore_DP0 pid=8) INFO 10-02 05:01:20 [kv_cache_utils.py:1087] GPU KV cache size: 203,552 tokens\n"
BAR = "Running batch: {:3}% Completed | {}/1200 [10:31<00:00,  1.90req/s]\n"
SERVE = "(ServeReplica:app:LLM pid=9) INFO 2026-08-19 17:58:10,800 app_LLM q9 1f -- {} 12.1ms\n"
BENCH = (
    "Starting initial single prompt test run...\n"
    "============ Serving Benchmark Result ============\n"
    "Successful requests:                     {}\n"
    "Failed requests:                         {}\n"
)
OLD_BENCH = (
    "Starting initial single prompt test run...\n"
    "100%|██████████| {}/128 [00:09<00:00, 13.97it/s]\n"
    "============ Serving Benchmark Result ============\n"
    "Successful requests:                     {}\n"
)
EVAL = "Running generate_until requests: {:3}%|█████     | {}/128 [00:29<00:29,  2.2it/s]\n"
UP = "INFO:     Application startup complete.\n"
V0_GRAPHS = "INFO 03-06 10:03:10 model_runner.py:547] Graph capturing finished in 5 secs.\n"
V0_SERVER = "INFO 03-06 10:02:01 api_server.py:719] args: Namespace(host=None, port=8000, model='example/model-8b')\n"
V0_MADE = (
    "INFO 03-06 10:02:02 llm_engine.py:70] Initializing an LLM engine with config: model='example/model-8b', "
    "tokenizer='example/model-8b', dtype=torch.float16, max_seq_len=4096\n"
    "INFO 03-06 10:02:40 llm_engine.py:275] # GPU blocks: 3418, # CPU blocks: 327\n"
)
PREEMPTED = (
    "WARNING 03-06 {} scheduler.py:1754] Sequence group {} is preempted by PreemptionMode.RECOMPUTE mode because there "
    "is not enough KV cache space. total_num_cumulative_preemption={}\n"
)
V0 = "INFO 03-06 10:02:40 executor_base.py:110] # cuda blocks: 13107, # CPU blocks: 2048\n"
DONE = "Processed prompts: 100%|██████████| 500/500 [1:02:11<00:00,  7.46s/it]\n"


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (STARTED, UNKNOWN),  # it may still be starting
        (STARTED + BAR.format(0, 0), UNKNOWN),  # tqdm draws it before the first answer
        (STARTED + BAR.format(0, 0) + BAR.format(1, 12), OK),
        (STARTED + SERVE.format("POST /v1/chat/completions 200"), OK),
        (STARTED + SERVE.format("POST /v1/chat/completions 500"), UNKNOWN),
        (STARTED + SERVE.format("GET /v1/models 200"), UNKNOWN),
        (STARTED + "{'loss': 0.0012, 'reward': 0.44, 'completions/mean_length': 611.0, 'epoch': 0.02}\n", OK),
        (STARTED + "{'loss': 0.61, 'grad_norm': 1.2, 'epoch': 0.02}\n", UNKNOWN),  # a step without completions
        (STARTED + "(TaskRunner pid=7) step:3 - critic/rewards/mean:0.4 - timing_s/gen:41.2\n", OK),
        (STARTED + "(TaskRunner pid=7) step:3 - actor/lr:0.000001\n", UNKNOWN),
        (V0_MADE + "INFO 03-06 10:03:10 model_runner.py:547] Graph capturing finished in 5 secs.\n", OK),
        (
            V0_MADE + "INFO 03-06 10:03:10 model_runner.py:547] Graph capturing finished in 5 secs, took 0.2 GiB\n",
            UNKNOWN,
        ),
        (
            V0_SERVER + V0_MADE + "INFO 03-06 10:03:10 model_runner.py:547] Graph capturing finished in 5 secs.\n",
            UNKNOWN,
        ),
        (V0_MADE.replace("engine with", "engine (v0.4.3) with") + V0_GRAPHS, OK),
        (V0_SERVER + V0_MADE.replace("engine with", "engine (v0.4.3) with") + V0_GRAPHS, UNKNOWN),
        (STARTED + EVAL.format(50, 64), OK),
        (STARTED + EVAL.format(0, 0), UNKNOWN),  # tqdm draws it before the first answer
        ("INFO 10-02 05:01:20 [tpu_runner.py:602] Init model | hbm=[(5.1, 15.7)]GiB\n" + UP, OK),
        ("INFO 10-02 05:01:20 [__init__.py:216] Automatically detected platform cuda.\n" + UP, UNKNOWN),
        (OLD_BENCH.format(128, 128), OK),
        (OLD_BENCH.format(128, 128).replace("it/s]\n", "it/s]"), OK),  # tqdm leaves its line open
        (OLD_BENCH.format(128, 127), Verdict.FINDING),  # its release counts the answers alone
        (BENCH.format(1000, 0), OK),
        (BENCH.format(0, 0), UNKNOWN),
        (BENCH.format(999, 1), Verdict.FINDING),
    ],
)
def test_an_engine_that_did_its_work_is_in_order(text: str, verdict: Verdict) -> None:
    assert judged_text(text).verdict is verdict


@pytest.mark.parametrize(
    ("last", "found"),
    [
        ("10:39:31", True),  # 50 in 500 s: one in ten seconds
        ("10:39:42", False),  # in 511 s
    ],
)
def test_v0_s_second_line_of_preemptions_is_a_storm_where_the_first_is_near(last: str, found: bool) -> None:
    log = V0 + PREEMPTED.format("10:31:12", 221, 1) + PREEMPTED.format(last, 398, 51) + DONE
    assert [one.code for one in judged_text(log).findings] == (["VD301"] if found else [])


DIED = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
WARM_UP = "(EngineCore pid=8) ERROR 10-02 05:01:{:02} [speech_to_text.py:184] {}\n"
RAISED = (
    "Traceback (most recent call last):",
    '  File "/opt/v/site-packages/vllm/entrypoints/speech_to_text.py", line 180, in warm_up',
    "    self.processor(None)",
    "ValueError: no audio in this call",
)


@pytest.mark.parametrize(
    ("heading", "end", "code"),
    [
        ("Audio preprocessing warmup failed (non-fatal): no audio in this call", "", None),
        ("Audio preprocessing warmup failed: no audio in this call", "", "VD599"),
        # what dies after it may have died of it
        ("Audio preprocessing warmup failed (non-fatal): no audio in this call", DIED, "VD599"),
    ],
)
def test_what_its_writer_goes_on_without_is_no_failure(heading: str, end: str, code: str | None) -> None:
    log = STARTED + "".join(WARM_UP.format(30, text) for text in (heading, *RAISED)) + end
    assert next((one.code for one in judged_text(log).findings), None) == code


def test_what_fails_after_it_is_the_root() -> None:
    heading = "Weight cache IPC loading failed; falling back to disk loading"
    later = (*RAISED[:-1], "KeyError: 'layers.0.mlp.gate'")
    texts = (heading, *RAISED, "EngineCore failed to start.", *later)
    told = judged_text(STARTED + "".join(WARM_UP.format(31, text) for text in texts) + DIED)
    assert "KeyError" in told.findings[0].evidence[0].excerpt


def test_a_blank_line_of_a_cut_traceback_is_not_quoted() -> None:
    said = "(VllmWorkerProcess pid=24) ERROR 04-30 10:38:21 [multiproc_worker_utils.py:238] {}\n"
    told = judged_text(said.format("") + said.format("        qk = tl.dot(q, k, acc=qk)") + said.format("     ^"))
    assert told.verdict is UNKNOWN
    assert "line 2 says that something ended or failed" in str(told.path)
