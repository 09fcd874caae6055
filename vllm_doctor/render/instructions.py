"""A change in words to follow: an option or a variable as one types it, any other thing as a deed."""

from vllm_doctor.launch import quote
from vllm_doctor.records.finding import Change, Scalar
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.redact.visible import visible
from vllm_doctor.remedy.argv import written

# What to do with a thing that is no setting of vLLM, by its name in the JSON; `{to}` is the value to have.
_RESTARTS = ("systemctl restart", "systemctl daemon-reload && systemctl restart")
_AGAIN = "pip install --force-reinstall"
_DEEDS = {
    "adapter": "merge the adapter into the model",
    "adapter-path": "name an adapter that the server sees",
    "gpu": "repair or replace the GPU",
    "host-ram": "give the host more memory, or load less",
    "link": "repair the link between the GPUs",
    "mig-mode": "change the MIG mode",
    "/dev/shm": "repair /dev/shm",  # noqa: S108 - the shared memory file system itself
    "build-tools": "install what compiles kernels at the start",
    "cache-owner": "give the service's user a separate cache folder",
    "cache-dir": "put vLLM's caches on a disk with room",
    "program-code": "change {to} for this vLLM",
    "client-input": "correct the client's request",
    "command": "correct the command",
    "arguments": "after the image only: {to}",
    "compute-mode": "set the GPU's compute mode to {to}",
    "container": "start the container again",
    "compile-shape": "compile a smaller shape",
    "container-command": "name a program that the image has",
    "container-devices": "{to}",
    "container-gpus": "give the container its GPUs",
    "process-gpus": "give the process a GPU",
    "container-memory": "raise the container's memory limit to {to}",
    "container-shm": "{to}",
    "container-toolkit": "enable GPUs in the container runtime",
    "container-toolkit-settings": "correct the NVIDIA container toolkit",
    "toolkit-user": "let the NVIDIA container toolkit open the devices",
    "volume-claim": "give the volume claim a volume",
    "node-selector": "let the pod choose a node that exists",
    "tolerations": "let the pod tolerate the nodes' taint",
    "node-tools": "install the program on the node",
    "security-group": "let the nodes send to each other",
    "gateway-limits": "raise the gateway's limit",
    "gateway-protocol": "let the gateway speak the server's protocol",
    "replica-health": "give the replica's health check more time",
    "tpu-vm": "take the runtime image of this TPU",
    "driver": "install a driver that fits",
    "device-toolkit": "bring the device's toolkit, kernels and driver to one release",
    "driver-module": "load the driver's module",
    "driver-persistence": "keep the GPUs initialised between programs",
    "checkpoint": "use another checkpoint",
    "checkpoint-files": "correct the checkpoint's files",
    "client-messages": "correct the client's request",
    "client-address": "correct the client's base URL",
    "client-key": "send the server's key with the request",
    "client-retry": "let the client send it again",
    "wsl": "run vLLM under WSL, or on Linux",
    "wsl-kernel": "update the kernel of WSL",
    "host-kernel": "update the kernel of the host",
    "gpu-sharing": "change how the container shares the GPU",
    "guard": "put a guard in front of the server",
    "kv-transfer": "repair the KV transfer",
    "host": "look at the host",
    "host-port": "free the host's port, or publish another",
    "hub-token": "log in with a token that the hub takes",
    "source-build": "take the release's wheel, or repair what the compiler names",
    "build-jobs": "build with {to} jobs at most",
    "ip-local-port-range": "let the kernel give more ports: {to}",
    "hub-access": "restore access to the model's files",
    "inventory": "copy the drop-in's settings into the inventory",
    "inventory-line": "{to}   in the inventory",
    "gpu-access": "give the process its GPU: device files and libraries",
    "gpu-driver": "bring the driver back: end what uses the card, then load it again, or restart the host",
    "job-gpus": "{to}",
    "job-node": "run the job on another node",
    "job-requeue": "let the job start again when it is preempted",
    "job-request": "ask for what a node has",
    "job-time-limit": "ask for a longer time limit",
    "kv-peer-gone": "find why the other side of the KV transfer went away, then restart this side",
    "kv-lookup": "let the scheduler's lookup reach the workers",
    "npu": "look at the NPU's health, and reset it where it is at fault",
    "container-driver": "bring the driver's library in line with the host's driver",
    "kv-peer": "let the two sides of the KV transfer reach and fit each other",
    "load-balancer": "balance by open requests",
    "missing-rank": "find out why one rank did not come",
    "nvlink": "repair the links between the GPUs",
    "pod-container": "repair the pod's other container",
    "job-memory": "#SBATCH --mem={to}",
    "image-name": "correct the image's name, or the right to pull it",
    "libcuda-symlink": "make libcuda.so visible to the linker",
    "liveness-probe": "livenessProbe: {{{to}}}",
    "own-process": "make each engine in a separate process",
    "main-guard": "put the engine under `if __name__ == '__main__':`",
    "max-tokens": '"max_tokens": {to} in the client\'s request',
    "network": "repair the network between the hosts",
    "nvidia-fabricmanager": "start the fabric manager",
    "node-capacity": "ask the cloud for another zone or kind of instance",
    "node-pool-kind": "give the autoscaler a pool of larger nodes",
    "node-pool-limit": "raise the limit of the autoscaler's pool",
    "node-gpus": "free GPUs on a node, or add one",
    "old-process": "stop the process that an earlier run left",
    "program": "put the program back, or correct its path in the unit",
    "interpreter": "start it with the Python of the environment that has vLLM",
    "ports-holder": "end what holds the ports of this host, if nobody needs it",
    "port-holder": "stop the program that holds the port, if nobody needs it",
    "operating-system": "run vLLM on Linux",
    "orphaned-engine": "stop the orphaned engine",
    "other-rank": "find out why the rank at the other end ended",
    "other-programs": "close programs that hold much of the memory",
    "other-gpu-processes": "stop the other programs that hold the GPU's memory",
    "placement": "make a node accept the pod",
    "pod-resources": "change what the pod asks for",
    "pod-settings": "give the pod settings that the cluster accepts",
    "replica-resources": "change the resources that the deployment asks for",
    "quota": "free or raise the namespace's quota",
    "prompt_logprobs": "do not ask for prompt_logprobs",
    "readiness-probe": "readinessProbe: {{{to}}}",
    "rank-settings": "start every rank with the same settings",
    "ray-head": "start Ray before vLLM, or unset RAY_ADDRESS",
    "ray-start": "correct how Ray is started",
    "ray-session": "restart Ray",
    "ray-lost-node": "find out why the node or the owner died, and bring it back",
    "ray-node": "start the server on a node whose GPUs are free",
    "ray-nodes": "add Ray nodes with free GPUs",
    "server": "look at the server",
    "accelerator-holder": "stop the program that holds the accelerator",
    "device-files": "give the container the card's device files",
    "sleep-level": "use sleep level {to}",
    "service-links": "rename the service, or set enableServiceLinks: false",
    "server-log": "judge the server's log",
    "shm volume": "give the container more shared memory",
    "startup-probe": "startupProbe: {{{to}}}",
    "socket-holder": "stop what holds the socket or the port",
    "page-cache": "drop the page cache before the start",
    "slurm-gpus": "ask Slurm for GPUs",
    "start-again": "start the same launch once more",
    "start-order": "start the engines of one GPU one after another",
    "torch-compile-cache": "remove the compile cache",
    "torch-extensions-cache": "remove torch's cache of built extensions",
    "unit-setting": "repair {to} of the unit",
    "volume": "repair the volume",
    "vllm_api_key": "set an API key",
    "vae-use-tiling": "let the VAE decode tile by tile",
    "enable-cpu-offload": "keep parts of the diffusion model on the host",
    "request": "ask for fewer frames or a smaller picture",
    "own-pass": "give the failing call fewer inputs at once",
    "wsl-memory": "give memory of WSL back to Windows",
    "wake-up": "wake the engine up",
    "weights": "fetch the weight files again",
    "file-access": "let the service's user use the file",
    "path": "name a path that exists",
    "disk-space": "make room on the disk that is full",
    "certificates": "trust the authority that signed the other side's certificate",
    "credentials": "give the program the rights that it lacks",
    "name-resolution": "make the name known where the program runs",
    "other-side": "make the server answer at this address",
    "patience": "let the program wait longer",
    "file-rights": "let the program's user open the path",
    "lmcache-config": "correct LMCache's own settings",
    "adapter-config": "correct the adapter's own file",
    "container-rights": "give the container the right that it lacks",
    "launcher": "start the ranks with torchrun",
    "disk": "repair the disk or the share",
    "distribution": "use a newer distribution, or a container image",
    "mount": "mount the share again",
    "engine-process": "look where the engine's process stands",
    "program-settings": "correct that program's own settings",
    "program-call": "correct the call in the program",
    "client-timeout": "raise the client's timeout",
    "server-address": "correct the server's address, or start it",
    "kv-server": "start the connector's own server",
    "kv-request": "send requests to the connector's proxy",
    "kv-connector": "upgrade the KV connector's package",
    "client-stream": "ask without streaming",
    "npu-log": "read the NPU's own log of that minute",
    "npu-links": "repair the links between the NPUs",
    "xpu-links": "repair the peer access between the cards",
    "local-copy": "keep the files on a local disk",
    "LimitNOFILE": "raise the limit of open files (LimitNOFILE)",
    "read-only": "use a writable folder",
    "host-address": "use an address of this host",
    "peer": "open the network path to the other side",
    "who-killed-it": "find out who stopped it",
    "xformers": "install an xformers that was built with CUDA",
    "code": "install {to}",
    "image": "use an image that fits",
    "foreign-module": "install the package that has {to}",
    "system-header": "install the package that has {to}",
    "option-of-package": "leave out the option that needs {to}",
    "hiding-file": "rename {to}",
    "model-files": "fetch the model onto this host",
    "python": "run another Python",
    "python-env": "install {to} into a fresh environment",
    "transformers": "install another transformers",
    "system-library": "install the system library",
    "triton-version": "install another triton",
    "installation": "install the packages again, as the installer's line asks",
    "wheel": "install another wheel",
    "LMCACHE_ENABLE_BLENDING": "switch LMCache's blending off",
    "LimitNPROC": "raise the limit of processes (LimitNPROC)",
    "RemoveIPC": "keep shared memory at logout (RemoveIPC=no)",
    "RestrictAddressFamilies": "allow AF_UNIX in the unit's RestrictAddressFamilies",
    "TasksMax": "raise the limit of tasks (TasksMax, pids.max)",
    "buffers": "give the host's connections more memory",
    "command-line": "write the launch into a file",
    "container-capabilities": "give the container the capability that it lacks",
    "container-network": "give the container the host's network",
    "device-access": "give the process its device files and their groups",
    "display": "serve from a GPU without a display",
    "draft-model": "take the draft that was trained for this model",
    "driver-libraries": "give the container the driver's compute libraries",
    "event-loop": "await the engine in the loop that runs already",
    "loop-of-thread": "give the thread an event loop first",
    "file-limit": "raise the limit of a file's size",
    "flashinfer-cache": "remove FlashInfer's compile cache",
    "hf-overrides": "name the class in --hf-overrides",
    "room-for-libraries": "leave the CUDA libraries room on the card",
    "holder": "stop the process that uses it",
    "import": "correct the import",
    "launch-command": "start the OpenAI server: vllm serve MODEL",
    "leftover": "remove the file that an earlier start left",
    "lock-file": "remove the lock, if no process downloads",
    "mps": "start the MPS daemon for this user, or leave it out",
    "packages": "install the program that PATH lacks",
    "rank-0": "repair what rank 0's own log says",
    "ray-actor-gpus": "give the actor as many GPUs as it has ranks",
    "ray-actors": "find out why Ray's actors do not answer",
    "ray-init": "start Ray once in this process",
    "ray-object-store": "give Ray's object store more room",
    "ray-resources": "free what Ray's placement asks for, or ask for less",
    "ray-token": "set Ray's token on each node",
    "raylet": "repair Ray on this node",
    "runtime-env": "correct what is sent along with the job (runtime_env)",
    "s3-access": "give the service access to the bucket",
    "snapshot": "make the snapshot again",
    "tpu-hosts": "start it on all hosts of the TPU slice",
    "vgpu-license": "give the virtual GPU its licence",
    "working-directory": "start it from another directory",
}


# The same with the value to have, where one is known.
_WITH_VALUE = {
    "foreign-package": "upgrade {to}",
    "vllm-version": "install vLLM {to}",
    "driver": "install driver {to}",
    "image": "use the image, or the wheel, of vLLM {to}",
}
# The same where the value is not known.
_WITHOUT_VALUE = {
    "compute-mode": "let several processes use the GPU (compute mode)",
    "python-env": "install vLLM into a fresh environment",
    "vllm-version": "install another build of vLLM",
}
_LIMIT = "resources: {{limits: {{memory: {to}}}}}"


def _template(change: Change) -> str | None:
    if change.name == "container-memory" and str(change.after).endswith("Gi"):
        return _LIMIT  # a size as Kubernetes writes it
    if change.name == "host" and (change.command or "").startswith("systemctl reboot"):
        return "reboot the host"
    if change.name == "vllm-version" and change.after is None and change.direction is Direction.UPGRADE:
        return "install a newer vLLM"
    special = _WITHOUT_VALUE if change.after is None else _WITH_VALUE
    return special.get(change.name) or _DEEDS.get(change.name)


def deed(change: Change) -> str:
    """What to type, or the deed in the imperative."""
    if change.kind is ChangeKind.FLAG:
        return _option(change)
    if change.kind is ChangeKind.ENV:
        return _variable(change)
    if change.direction is Direction.REBOOT:
        return "reboot the host"
    if change.direction is Direction.RESET:
        asks = f" (it asks for: {scalar(change.after)})" if change.after is not None else ""
        return f"drain the host, then reset or replace the GPU{asks}"
    if change.direction is Direction.REPAIR and (change.command or "").startswith(_RESTARTS):
        return f"restart {change.name}"
    if change.direction is Direction.REPAIR and (change.command or "").startswith(_AGAIN):
        return f"install {change.name} again"
    if " unpause " in (change.command or ""):
        return "unpause the container"
    if change.name.startswith("process "):
        return (
            f"let {change.name} go on" if (change.command or "").startswith("kill -CONT") else f"look at {change.name}"
        )
    told = _template(change)
    if change.kind is ChangeKind.PACKAGE and change.direction is Direction.ADD and "{to}" not in (told or ""):
        return f"install {scalar(change.after) if change.after is not None else change.name}"
    if told is not None and ("{to}" not in told or change.after is not None):
        return told.format(to=scalar(change.after))
    if change.kind is ChangeKind.PACKAGE and change.direction is Direction.CHANGE:
        return f"install {scalar(change.after) if change.after is not None else change.name}"
    to = f" to {scalar(change.after)}" if change.after is not None else ""
    return f"{change.direction.value} {change.name}{to}"


def _option(change: Change) -> str:
    if change.name == "model" and change.after is None:
        smaller = change.direction is Direction.SMALLER
        return "take a smaller or more quantized checkpoint" if smaller else "take another model or checkpoint"
    if change.after is not None:
        return " ".join(quote.word(scalar(word)) for word in written(change))
    if change.unset is not None:
        return f"--{change.name} {scalar(change.unset)}"
    if change.direction is Direction.REMOVE:
        return f"remove --{change.name}"
    if change.direction is Direction.CHANGE:
        return f"change --{change.name}"
    by = f" by {change.by:g}" if change.by is not None else ""
    return f"{change.direction.value} --{change.name}{by}"


def _variable(change: Change) -> str:
    name = change.variable or change.name
    if change.after is not None:
        return f"{name}={quote.word(scalar(change.after))}"
    return f"unset {name}" if change.direction is Direction.REMOVE else f"{change.direction.value} {name}"


def scalar(value: Scalar) -> str:
    """A value of a change or a fact as text."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return visible(str(value), 400)
