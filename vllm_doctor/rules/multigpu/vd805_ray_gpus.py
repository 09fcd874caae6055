"""VD805: Ray has not got the GPUs that the launch asks for, and the start waits for them."""

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import Hit, says
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.last_wait import final_run
from vllm_doctor.rules.gates.named_fault import named, shown, text
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import environment, finding, set_flag, thing

_IDS = ("ray-placement", "ray-node-empty", "ray-node-outside")
# What Ray calls one, of NVIDIA and AMD.
_GPU = "GPU"
# A script counts every few seconds; nodes that start together come within a minute of one another.
_COUNTED = 3


def judge(case: Case) -> Outcome:
    """Does it wait for GPUs, or did it give up waiting?"""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    fault = named(case, *_IDS)
    over = not isinstance(fault, NotHere | Unseen)
    waits = final_run(run, run.all("ray-wait")) if case.root is None else ()
    if not over and not waits and case.root is None and (slow := final_run(run, run.all("ray-serve-wait"))):
        return _serve_waits(case, slow)
    asked = final_run(run, run.all("ray-no-such-node")) if case.root is None else ()
    if asked:
        return _no_such_node(case, asked[-1])
    if not over and not waits and case.root is None and (missing := _nodes_missing(case, run)) is not None:
        return missing
    if not over and not waits:
        return NotHere("nothing waits for a placement group")
    told = fault.hits[0].index if not isinstance(fault, NotHere | Unseen) else waits[-1].index if waits else None
    if told is not None and (task := _task(case, told)) is not None:
        return _inside_task(case, told, task)
    if not isinstance(fault, NotHere | Unseen) and (what := fault.fields("ray-node-empty").get("what")) is not None:
        return _empty_node(case, fault, what)
    gpus = case.gpus
    if (named_node := next(reversed(run.all("ray-no-such-node")), None)) is not None:
        return _no_such_node(case, named_node)
    fewer = (
        set_flag(
            case,
            "tensor-parallel-size",
            len(gpus) if gpus else None,
            Direction.LOWER,
            "at most as many ranks as the cluster has GPUs",
        )
        if case.count("tensor-parallel-size") != 1
        else None
    )
    nodes = thing(ChangeKind.OS, "ray-nodes", Direction.ADD, "let the other nodes join first", command="ray status")
    return finding(
        RULE,
        title=RULE.title if over else f"{RULE.title}: waited {waits[-1].fields['seconds']} s and longer",
        confidence=Confidence.CONFIRMED if over else Confidence.LIKELY,
        evidence=(
            shown(case, fault, *_IDS)
            if not isinstance(fault, NotHere | Unseen)
            else (case.line(waits[0].index), case.line(waits[-1].index))
        ),
        # Nothing tells how many ranks there are to be where the launch is not known.
        changes=(fewer, nodes) if case.flag("tensor-parallel-size") is not None else (nodes, fewer),
        refute="`ray status` shows as many free GPUs as ranks",
    )


def _task(case: Case, index: int) -> str | None:
    """The task or actor of another program in which vLLM starts with one rank: Ray puts its name before each line."""
    process = case.run.lines[index].process if case.run is not None else None
    one = case.count("tensor-parallel-size") in {None, 1} and case.count("pipeline-parallel-size") in {None, 1}
    return process if process and one and not says(process, "process-of-vllm") else None


def _inside_task(case: Case, index: int, task: str) -> Finding:
    """Ray takes a task's GPUs out of what its node has left, and vLLM with Ray as its executor asks for them again."""
    why = f"one rank needs no Ray: the GPU that {task} was given is then the one that vLLM uses"
    without = set_flag(case, "distributed-executor-backend", "mp", Direction.SET, why)
    held = (
        f"or let {task} ask Ray for a GPU (num_gpus) and vLLM for none, as newer releases of that program do: how many "
        "of its tasks run at once is at most the number of GPUs"
    )
    return finding(
        RULE,
        title=f"Ray has no GPU left for vLLM within its task {task}",
        confidence=Confidence.LIKELY,
        evidence=(case.line(index),),
        changes=(
            without,
            thing(ChangeKind.OS, "program-settings", Direction.CHANGE, held, command="ray status"),
        ),
        refute="`ray status` shows free GPUs while the task waits",
    )


def _nodes_missing(case: Case, run: AnalysedRun) -> Finding | None:
    """A script counts the cluster's nodes before it starts vLLM, and the count has not become whole."""
    counted = final_run(run, sorted((*run.all("ray-nodes-alive"), *run.all("ray-workers-active")), key=_place))
    if len(counted) < _COUNTED:
        return None
    have, want = (int(counted[-1].fields[name]) for name in ("have", "want"))
    if have >= want:
        return None
    why = (
        "the other node's Ray did not start, was not placed, or does not reach the head: its pod's events and its own "
        "log say which"
    )
    look = "ray status; kubectl get pods -o wide; kubectl describe pod WORKER; kubectl describe raycluster"
    return finding(
        RULE,
        title=f"Ray waits for nodes: {have} of {want} have joined",
        confidence=Confidence.LIKELY,
        evidence=(case.line(counted[0].index), case.line(counted[-1].index)),
        changes=(thing(ChangeKind.OS, "ray-nodes", Direction.ADD, why, command=look),),
        refute="the log goes on, and the other nodes join",
    )


def _place(hit: Hit) -> int:
    return hit.index


def _empty_node(case: Case, fault: Fault, what: str) -> Finding:
    """vLLM's first rank runs on the node of its own process, to which Ray was not told of any GPU (TPU, HPU…): started
    without one in sight, or with fewer than there are."""
    why = f"start Ray on this node where its {what}s are visible, or name how many; vllm serve needs one here"
    if says(text(case, fault), "ray-part-of-a-gpu"):
        return _part_of_a_gpu(case, fault)
    if _in_an_actor(case):
        return _empty_placement(case, fault, what)
    many = "--num-gpus=N" if what == _GPU else f"""--resources='{{"{what}": N}}'"""
    look = "nvidia-smi -L; " if what == _GPU else ""
    return finding(
        RULE,
        title=f"Ray offers no {what} on the node where vLLM starts",
        confidence=Confidence.CONFIRMED,
        evidence=shown(case, fault, *_IDS),
        changes=(
            thing(
                ChangeKind.OS,
                "ray-start",
                Direction.REPAIR,
                why,
                command=f"{look}ray stop; ray start --head {many}   # a worker: --address=HEAD:6379",
            ),
        ),
        refute=f"`ray list nodes --detail` shows a {what} among the resources of this node",
    )


def _part_of_a_gpu(case: Case, fault: Fault) -> Finding:
    """The actor that starts vLLM took the rest itself; vLLM's own workers ask Ray for a whole one each."""
    why = (
        "the actor that starts vLLM asks Ray for a GPU or a part of one itself, which vLLM's workers then lack: let it "
        "ask for none (ray_actor_options num_gpus 0), and put the workers' GPUs into its placement group"
    )
    bundles = "placement_group_bundles=[{CPU: 1}, {GPU: 1}, …]   # one with a GPU for each rank"
    change = thing(ChangeKind.OS, "replica-resources", Direction.CHANGE, why, command=f"ray status -v   # {bundles}")
    return finding(
        RULE,
        title="Ray has only a part of a GPU left on the node where vLLM starts",
        confidence=Confidence.CONFIRMED,
        evidence=shown(case, fault, *_IDS),
        changes=(change,),
        refute="`ray status -v` shows a whole GPU free on the node that the message names",
    )


def _in_an_actor(case: Case) -> bool:
    """Does a call of a Ray actor fail (a replica of Ray Serve, a trainer's worker)? Ray chose the actor's node, and a
    `ray stop` there would end more than this server."""
    lines = case.run.lines if case.run is not None else ()
    return any(says(line.text, "ray-actor-call") for line in lines)


def _empty_placement(case: Case, fault: Fault, what: str) -> Finding:
    """The actor that starts vLLM asks Ray for no card of its own, so that Ray put it on a node without one."""
    why = f"the actor, or the bundle of the placement group that it runs in, asks Ray for no {what}: let it ask for one"
    bundles = f'placement_group_bundles=[{{"CPU": 1, "{what}": 1}}], placement_group_strategy="STRICT_PACK"'
    return finding(
        RULE,
        title=f"Ray put the actor that starts vLLM on a node without a {what}",
        confidence=Confidence.CONFIRMED,
        evidence=shown(case, fault, *_IDS),
        changes=(
            thing(
                ChangeKind.OS,
                "replica-resources",
                Direction.CHANGE,
                why,
                command=f"ray list nodes --detail   # in the deployment: {bundles}",
            ),
        ),
        refute=f"`ray list nodes --detail` shows a {what} among the resources of the node that the message names",
    )


def _serve_waits(case: Case, waits: tuple[Hit, ...]) -> Finding:
    """Ray Serve places a replica only where a node has all that its deployment asks for, vLLM's ranks included."""
    told = waits[-1].fields
    why = f"a replica asks for {told['asked']}, and the cluster has {told['has']} left: ask for what a node has"
    return finding(
        RULE,
        title="Ray Serve finds no node with what a replica asks for",
        confidence=Confidence.LIKELY,
        evidence=(case.line(waits[-1].index),),
        changes=(
            thing(ChangeKind.OS, "replica-resources", Direction.CHANGE, why, command="ray status -v"),
            thing(
                ChangeKind.OS,
                "ray-nodes",
                Direction.ADD,
                "or start a node that offers these resources (`ray start --num-gpus … --resources …`)",
                command="ray status",
            ),
        ),
        refute="`ray status` shows a node with all of these resources free, or an environment is being installed",
    )


def _no_such_node(case: Case, asked: Hit) -> Finding:
    """vLLM puts its first rank on the node of its own address, and Ray has no node of that name with a GPU: Ray knows
    each by the address that `ray start` took, never by a host's name."""
    node = asked.fields["node"]
    why = "the address by which Ray knows this node (`ray list nodes`), on each node that node's own"
    return finding(
        RULE,
        title="Ray knows no node of the address that vLLM gives as its own",
        detail=f"vLLM asks for node:{node}",
        confidence=Confidence.LIKELY,
        evidence=(case.line(asked.index),),
        changes=(
            environment(
                "VLLM_HOST_IP",
                Direction.CHANGE if case.env("VLLM_HOST_IP") is not None else Direction.SET,
                why,
                command="ray list nodes; ip -br addr",
            ),
            thing(ChangeKind.OS, "ray-nodes", Direction.ADD, "let the other nodes join first", command="ray status"),
        ),
        refute=f"`ray list nodes` shows {node} alive with a free GPU",
    )


RULE = rule("VD805", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
