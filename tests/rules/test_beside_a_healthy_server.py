"""What people, clients and other programs write around a server that is well tells of no end of it."""

import json

import pytest

from tests.cli.test_diagnose import HEALTHY
from tests.log.judging import judged_text
from tests.rules.test_ends import STOPPED
from vllm_doctor.records.verdict import Verdict

OK = Verdict.OK
ANSWER = '(APIServer pid=1) INFO:     10.0.0.7:4 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
SERVED = HEALTHY + 2 * ANSWER
JOBS = (
    "$ squeue\nJOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n"
    "546        gpu     serve   ubuntu  R      13:04      1 n1\n"
)
CONTAINERS = (
    "NAME     IMAGE                      COMMAND        SERVICE   CREATED       STATUS                 PORTS\n"
    'vllm-1   vllm/vllm-openai:v0.11.0   "vllm serve"   vllm      2 hours ago   Up 2 hours (healthy)   8000/tcp\n'
)
K6 = "running (0m30.0s), 00/10 VUs, 40 complete and 0 interrupted iterations\n"
AB = (
    "This is ApacheBench, Version 2.3 <$Revision: 1 $>\nComplete requests:      200\nFailed requests:        {}\n"
    "Requests per second:    9.31 [#/sec] (mean)\n"
)
LOCUST = (
    "Type     Name                  # reqs      # fails |    Avg     Min     Max    Med |   req/s  failures/s\n"
    "         Aggregated               400 {:>9} |   1411     301    4902   1300 |   13.51        0.10\n"
)


def of(stream: str, text: str) -> str:
    return "".join(f"{stream}  | {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    "below",
    [
        "$ free -g\n               total        used        free\nMem:             503          41         120\n",
        "$ kubectl top pod\nNAME     CPU(cores)   MEMORY(bytes)\nvllm-0   1021m        41233Mi\n",
        '$ curl -s localhost:8000/v1/models | jq .data[0].id\n"acme/chat-8b"\n',
        JOBS,
        CONTAINERS,
        LOCUST.format("0(0.00%)"),
        K6 + "    http_req_failed................: 0.00%  0 out of 400\n",
        "Status code distribution:\n  [200]\t400 responses\n",
        AB.format(0),
        "[smoke] chat ... OK\n[smoke] 3 ok, 0 failed\n",
        "Benchmarks Stats:\n| Benchmark  | Per Second |\n|------------|------------|\n| sweep      | 2.11       |\n",
        '{"object":"chat.completion","choices":[{"message":{"content":"Hello there"},"finish_reason":"stop"}]}\n',
    ],
)
def test_what_somebody_asks_or_measures_below_the_log(below: str) -> None:
    assert judged_text(SERVED + below).verdict is OK
    assert (
        judged_text(SERVED + below + "./run.sh: line 3:   902 Killed        vllm serve acme/chat-8b\n").verdict
        is not OK
    )


@pytest.mark.parametrize(
    "below",
    [
        "$ curl localhost:8000/v1/models\ncurl: (52) Empty reply from server\n",
        "$ curl localhost:8000/v1/models\n<html><h1>502 Bad Gateway</h1></html>\n",
        AB.format(120),
        "[smoke] chat ... TIMEOUT\n[smoke] 1 ok, 2 failed\n",
        LOCUST.format("133(33.25%)"),
        K6 + "    http_req_failed................: 62.00% 31 out of 50\n",
        "Status code distribution:\n  [200]\t40 responses\n  [500]\t12 responses\n",
        '{"choices":[{"message":{"content":""},"finish_reason":"length"}]}\n',
    ],
)
def test_a_question_that_has_no_answer_is_not_ok(below: str) -> None:
    assert judged_text(SERVED + below).verdict is not OK


def test_a_line_of_a_form_after_which_the_engine_has_worked() -> None:
    took = "Inference duration: {} seconds.\n"
    assert judged_text(SERVED + took.format("6.62") + ANSWER + took.format("5.97")).verdict is OK
    assert judged_text(SERVED + took.format("5.97")).verdict is not OK


def test_a_failure_of_another_container_is_its_own() -> None:
    fails = (
        "Traceback (most recent call last):\n"
        '  File "/app/worker.py", line 12, in <module>\n'
        "    main()\n"
        'psycopg2.OperationalError: connection to server at "db", port 5432 failed: Connection refused\n'
    )
    vllm, own = of("vllm-1", SERVED), of("worker-1", fails)
    assert judged_text(vllm + own + of("vllm-1", ANSWER)).verdict is OK
    assert judged_text(vllm + own + "worker-1 exited with code 1\n").verdict is OK
    assert judged_text(vllm + "vllm-1 exited with code 1\n").verdict is not OK
    assert judged_text(of("worker-1", SERVED + fails)).verdict is not OK
    assert judged_text(vllm + of("worker-1", fails.replace("/app/", "/site-packages/ray/"))).verdict is not OK  # a rank


def test_the_program_within_which_ray_made_the_engine_goes_on_after_it() -> None:
    before, after = "(Trainer pid=120) step 1\n", "(Trainer pid=120) saved checkpoint to /ckpt/step_2\n"
    made = (
        "(Rollout pid=210) INFO 06-19 10:00:50 [core.py:109] Initializing a V1 LLM engine (v0.23.0) with config: "
        "model='acme/chat-8b', dtype=torch.bfloat16\n"
        "(Rollout pid=210) INFO 06-19 10:01:30 [core.py:306] init engine (profile, create kv cache, warmup model) took "
        "31.40 s\n"
    )
    assert judged_text(before + made + after).verdict is OK
    assert judged_text(before + made + "(Trainer pid=120) fatal: rollout is dead\n").verdict is not OK


def test_what_stands_above_the_results_of_an_evaluation_did_not_end_it() -> None:
    engine = (
        "INFO 03-01 10:00:30 [core.py:76] Initializing a V1 LLM engine (v0.12.0) with config: model='acme/chat-8b'\n"
        "INFO 03-01 10:01:10 [core.py:247] init engine (profile, create kv cache, warmup model) took 30.13 seconds\n"
        "Running generate_until requests: 100%|██████████| 128/128 [00:29<00:00,  4.2it/s]\n"
    )
    git = "fatal: not a git repository (or any of the parent directories): .git\n"
    results = "vllm (pretrained=acme/chat-8b), gen_kwargs: (None), limit: None, num_fewshot: 8, batch_size: auto\n"
    assert judged_text(engine + git + results).verdict is OK
    assert judged_text(engine + git).verdict is not OK


def test_how_kubernetes_carries_out_a_stop() -> None:
    events = (
        "LAST SEEN   TYPE     REASON              OBJECT       MESSAGE\n"
        "2m          Normal   SuccessfulRescale   hpa/vllm     New size: 2; reason: All metrics below target\n"
        "2m          Normal   Killing             pod/vllm-0   Stopping container vllm\n"
    )
    assert judged_text(STOPPED + events).verdict is OK
    assert judged_text(SERVED + events).verdict is not OK


def test_a_harness_that_has_stopped_the_server_tidies_up() -> None:
    tests = "============================== 12 passed, 1 skipped in 41.20s ==============================\n"
    assert judged_text(STOPPED + tests + "Cleaning up orphan processes\n").verdict is OK
    assert judged_text(STOPPED + "Cleaning up orphan processes\n").verdict is not OK


def test_a_destructor_that_complains_at_the_end_of_a_batch() -> None:
    batch = (
        "(EngineCore_0 pid=70) INFO 09-01 10:01:10 [core.py:214] init engine (profile, create kv cache, warmup model) "
        "took 30.13 seconds\n"
        "Processed prompts: 100%|██████████| 900/900 [00:48<00:00, 18.60it/s, est. speed input: 2011.00 toks/s]\n"
    )
    heading, ends = (
        "Exception ignored in: <function LLM.__del__ at 0x7f>\n",
        "TypeError: 'NoneType' object is not callable\n",
    )
    assert judged_text(batch + heading + ends).verdict is OK
    assert judged_text(batch + ends).verdict is not OK


def test_a_peer_that_came_back_is_over_once_requests_come_and_go() -> None:
    lost = (
        "(EngineCore pid=2) WARNING 05-21 10:2{}:00 [base_worker.py:8] handshake failed: NIXL_ERR_REMOTE_DISCONNECT\n"
    )
    twice = lost.format(1) + lost.format(2)
    assert [f.code for f in judged_text(SERVED + twice + ANSWER).findings] == ["VD528"]
    assert judged_text(SERVED + twice + 3 * ANSWER).verdict is OK


def test_an_adapter_that_is_not_there_while_others_are_loaded_is_its_client_s() -> None:
    on = (
        "(APIServer pid=1) WARNING 05-21 10:20:00 [api_router.py:40] LoRA dynamic loading & unloading is enabled in "
        "the API server. This should ONLY be used for local development!\n"
    )
    loads = '(APIServer pid=1) INFO:     10.0.0.7:4 - "POST /v1/load_lora_adapter HTTP/1.1" {}\n'
    missing = loads.format("404 Not Found")
    assert judged_text(HEALTHY + on + loads.format("200 OK") + missing + 2 * ANSWER).verdict is OK
    assert judged_text(HEALTHY + on + missing + 2 * ANSWER).verdict is Verdict.FINDING


def test_a_document_of_loki_keeps_the_clock_of_each_line() -> None:
    """uvicorn writes no time of its own: that statistics stopped is told by when the store had its lines."""
    stats = (
        "(APIServer pid=1) INFO 05-21 10:20:12 [loggers.py:9] Engine 000: Avg prompt throughput: 9.0 tokens/s, Avg "
        "generation throughput: 90.0 tokens/s, Running: 3 reqs, Waiting: 0 reqs, GPU KV cache usage: 4.0%, Prefix "
        "cache hit rate: 0.0%\n"
    )
    lines = (SERVED + 2 * stats).splitlines()
    models = '(APIServer pid=1) INFO:     10.0.0.7:4 - "GET /v1/models HTTP/1.1" 200 OK'
    start = 1_779_358_812
    values = [[str((start + n) * 10**9), line] for n, line in enumerate(lines)]
    later = [[str((start + 600 + 60 * n) * 10**9), models] for n in range(3)]

    def document(rows: list[list[str]]) -> str:
        return json.dumps({"status": "success", "data": {"result": [{"stream": {"app": "vllm"}, "values": rows}]}})

    assert judged_text(document(values)).verdict is OK
    assert "neither statistics" in judged_text(document(values + later)).path[-1].because


def test_another_unit_of_the_host_begins_no_run_of_the_server() -> None:
    journal = "".join(f"May 21 10:1{n % 10}:00 gpu1 vllm[7]: {line}\n" for n, line in enumerate(SERVED.splitlines()))
    other = (
        "May 21 10:30:00 gpu1 systemd[1]: Starting logrotate.service - Rotate log files...\n"
        "May 21 10:30:00 gpu1 systemd[1]: logrotate.service: Deactivated successfully.\n"
        "May 21 10:30:01 gpu1 systemd[1]: Finished logrotate.service - Rotate log files.\n"
    )
    assert judged_text(journal + other).verdict is OK
    own = other.replace("logrotate", "vllm")
    assert judged_text(journal + own).verdict is not OK
