"""Devices that are not one CUDA card of one size: named as what they are, never planned as another."""

import json

import pytest

from tests.plan.models import LLAMA_8B, arch
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.main import run
from vllm_doctor.knowledge.gpus import elsewhere, find
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.plan.launch.resolve import resolve
from vllm_doctor.plan.question.planner import Question, planner
from vllm_doctor.plan.support import card, judge
from vllm_doctor.records.host import Gpu


def settings(version):
    v = as_version(version)
    return resolve(parse_launch(["vllm", "serve", "m"], v), v, arch(LLAMA_8B), elsewhere("MI300X"), 191.98, 1)


@pytest.fixture
def ask(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA_8B))

    def asked(*args):
        fixed = ("--gpus", "1", "--vllm-version", "0.33.0", "--model-config", str(config))
        code = run(["plan", *fixed, *args, "--", "vllm", "serve", "m", "--max-model-len", "32768"])
        said = capsys.readouterr()
        return code, " ".join((said.out or said.err).split())

    return asked


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("MI250X", "AMD Instinct MI250X runs vLLM's ROCm build"),
        ("AMD Radeon RX 7900 XTX", "AMD Radeon RX 7900 XTX runs vLLM's ROCm build"),
        ("Arc Pro B60", "Intel Arc Pro B60 runs vLLM's XPU build"),
        ("TPU v6e", "Google TPU v6e runs vLLM's TPU plugin"),
        ("Gaudi 3", "Intel Gaudi 3 runs vLLM's Gaudi plugin"),
    ],
)
def test_another_maker_s_device_is_named_with_what_is_known_of_it(ask, name, said):
    code, out = ask("--gpu", name)
    assert code == Exit.INCOMPLETE
    assert said in out
    assert "one request of 32768 tokens needs 4.00 GiB of that; 1 GiB holds 8,192 tokens" in out
    assert "--gpu-memory-gib" not in out
    assert "non-torch" not in out


def test_the_json_has_no_figure_that_was_not_planned(ask):
    code, out = ask("--gpu", "MI250X", "--format", "json")
    told = json.loads(out)
    assert (code, told["predicted"]["verdict"], told["recommended"]) == (Exit.INCOMPLETE, "unknown", None)
    assert told["predicted"]["weights_gib"] == pytest.approx(14.99, abs=0.01)
    terms = ("non_torch_gib", "activation_gib", "cudagraph_gib", "cudagraph_budget_gib", "available_kv_gib")
    assert {told["predicted"][name] for name in terms} == {None}


def test_a_kind_of_device_of_which_starts_were_compared_is_planned_in_16_bits(ask):
    code, out = ask("--gpu", "MI300X", "--format", "json")
    told = json.loads(out)
    assert (code, told["predicted"]["verdict"]) == (Exit.OK, "starts")
    assert told["predicted"]["non_torch_gib"] > 0.8
    assert any("refusals of that build are not judged" in note for note in told["notes"])


def test_there_it_is_not_said_to_start_in_a_format_that_none_was_compared_with():
    packed = {**LLAMA_8B, "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}}
    doubts = list(card.doubts(arch(packed), settings("0.19.0"), elsewhere("MI300X")))
    assert len(doubts) == 1
    assert doubts[0].endswith("of which starts in 16 bits were compared with a plan, and none with fp8")
    assert not list(card.doubts(arch(LLAMA_8B), settings("0.19.0"), elsewhere("MI300X")))


def test_weights_that_lie_on_no_such_device_do_not_start(ask):
    code, out = ask("--gpu", "Arc B580")
    assert code == Exit.FINDINGS
    assert "does not start: the weights do not fit" in out
    assert "cards that hold it" not in out


@pytest.mark.parametrize("name", ["Tesla P100", "P40", "GTX 1080 Ti", "Tesla K80"])
def test_a_card_below_7_0_is_refused_whatever_its_memory(ask, name):
    code, out = ask("--gpu", name)
    assert code == Exit.FINDINGS
    assert "needed: 7.0 or higher, which every release asks for" in out


@pytest.mark.parametrize(("name", "sizes"), [("RTX PRO 5000", ("47.37", "71")), ("Jetson AGX Orin", ("61.3", "29.9"))])
def test_a_name_that_is_sold_with_two_sizes_is_asked_for(ask, name, sizes):
    code, out = ask("--gpu", name)
    assert code == Exit.USAGE
    assert f"sold with {sizes[0]} and with {sizes[1]} GiB" in out


def test_the_size_in_the_name_or_beside_it_settles_which(ask):
    assert find("RTX PRO 5000 72GB").total_gib == 71.0
    assert find("RTX PRO 5000", 47.4).total_gib == 47.37
    assert find("RTX 4060 Ti 8GB").total_gib == 7.6
    code, _ = ask("--gpu", "Jetson AGX Orin 64GB")
    assert code != Exit.USAGE


@pytest.mark.parametrize("name", ["Jetson AGX Orin 64GB", "Jetson Thor 128GB"])
def test_a_jetson_runs_no_code_of_a_desktop_card_so_a_start_cannot_be_said(ask, name):
    code, out = ask("--gpu", name)
    assert code == Exit.INCOMPLETE
    assert "that of desktop cards does not run there; NVIDIA builds vLLM for Jetson" in out
    assert "run vllm serve" not in out


def test_a_release_with_code_for_a_jetson_is_planned_as_any(tmp_path, ask):
    words = ("vllm", "serve", "m", "--max-model-len", "8192")
    asked = Question(words, "Jetson AGX Orin 64GB", 1, None, "0.11.0", str(tmp_path / "config.json"))
    assert planner(asked).predict().verdict == "starts"


@pytest.mark.parametrize(
    ("name", "maker", "offered"),
    [
        ("Radeon RX 6800", "AMD", "AMD Instinct MI300X"),
        ("Arc B570", "Intel", "Intel Arc B580"),
        ("TPU v3", "Google", "Google TPU v5e"),
    ],
)
def test_an_unknown_device_of_another_maker_is_never_planned_by_its_memory_alone(ask, name, maker, offered):
    code, out = ask("--gpu", name)
    assert code == Exit.USAGE
    assert f"no device of {maker} that is known" in out
    assert offered in out
    assert ("--gpu-memory-gib beside it" in out) is (maker != "Intel")  # one of whose devices runs another build
    assert "alone" not in out
    assert "NVIDIA" not in out


def test_a_device_that_only_its_maker_s_name_tells_is_named_with_what_is_known_of_it(ask):
    code, out = ask("--gpu", "Radeon RX 6800", "--gpu-memory-gib", "16")
    assert code == Exit.INCOMPLETE
    assert "Radeon RX 6800 runs vLLM's ROCm build" in out
    assert "one request of 32768 tokens needs 4.00 GiB of that" in out
    assert ask("--gpu", "Arc B570", "--gpu-memory-gib", "10")[0] == Exit.USAGE


def test_makers_short_names_are_known():
    names = ("Intel Max 1550", "Arc B60", "Jetson Thor 128GB")
    assert [(find(n) or elsewhere(n)).name for n in names] == [
        "Intel Data Center GPU Max 1550", "Intel Arc Pro B60", "NVIDIA Thor 128GB",
    ]  # fmt: skip


def test_a_device_whose_name_does_not_say_its_memory_is_asked_for_it(ask):
    code, out = ask("--gpu", "Strix Halo")
    assert (code, "does not say its memory" in out) == (Exit.USAGE, True)
    assert elsewhere("Strix Halo", 96.0).total_gib == 96.0
    assert elsewhere("AMD Radeon 8060S", 96.0).name == elsewhere("Radeon 8060S").name == "AMD Ryzen AI Max+ 395"


def test_no_card_of_nvidia_s_is_taken_for_another_maker_s():
    assert elsewhere("H100") is None
    assert elsewhere("RTX 4090") is None
    assert find("MI300X") is None


@pytest.fixture
def least_sure(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA_8B))

    def asked(*card, flags=("--tensor-parallel-size", "2")):
        launch = ("vllm", "serve", "m", "--max-model-len", "8192", *flags)
        fixed = ("--gpus", "2", "--vllm-version", "0.20.0", "--model-config", str(config), "--format", "json")
        run(["plan", *fixed, *card, "--", *launch])
        return json.loads(capsys.readouterr().out)["least_sure"]

    return asked


@pytest.mark.parametrize(
    ("card", "term", "fact"),
    [
        (("--gpu-memory-gib", "80"), "memory outside torch", "the card's name, which says how cards are linked"),
        (("--gpu", "RTX 5090"), "CUDA graphs", "whether each card reads the other's memory"),
        (("--gpu", "H100"), "memory outside torch", "a log of any start on this host"),
    ],
)
def test_the_fact_is_named_that_would_narrow_the_range_most(least_sure, card, term, fact):
    told = least_sure(*card)
    assert told["term"] == term
    assert fact in told["told_by"]
    assert told["pool_less_gib"] + told["pool_more_gib"] > 0


def test_an_unnamed_card_that_may_be_an_a100_may_have_its_step(least_sure):
    def told(total, *flags):
        return least_sure("--gpu-memory-gib", total, flags=("--tensor-parallel-size", "1", *flags))

    assert told("79.2")["term"] == "default step"
    assert told("79.2")["pool_more_gib"] == pytest.approx(0.94, abs=0.02)
    assert told("79.2")["told_by"].startswith("--gpu: by default an A100 takes fewer")
    assert told("94.0")["term"] != "default step"
    assert told("79.2", "--max-num-seqs", "64", "--max-num-batched-tokens", "4096")["term"] != "default step"


@pytest.mark.parametrize(
    ("name", "said", "planned"),
    [
        ("NVIDIA H100 80GB HBM3", "79.65", "79.19"),  # nvidia-smi's 81559 MiB
        ("NVIDIA L4", "22.49", "22.03"),
        ("Tesla T4", "15.0", "14.56"),
        ("NVIDIA H100 80GB HBM3", "79.25", "79.25"),  # another host's start-up log
        ("NVIDIA A10G", "22.30", "22.3"),
    ],
)
def test_of_the_size_that_nvidia_smi_tells_the_driver_keeps_a_part(ask, name, said, planned):
    _, out = ask("--gpu", name, "--gpu-memory-gib", said, "--format", "json")
    told = json.loads(out)
    assert told["card"]["total_gib"] == float(planned)
    kept = [note for note in told["notes"] if "the driver keeps a part" in note]
    assert len(kept) == (said != planned and float(said) != float(planned))


@pytest.mark.parametrize(
    ("name", "said", "more"),
    [("RTX 5070 Ti", "15.92", True), ("RTX 5070 Ti", "15.48", False), ("L4", "22.49", False)],
)
def test_of_a_pc_s_card_the_range_has_what_cuda_sees_under_wsl(ask, name, said, more):
    told = json.loads(ask("--gpu", name, "--gpu-memory-gib", said, "--format", "json")[1])
    named = json.loads(ask("--gpu", name, "--format", "json")[1])
    assert any("under WSL" in note for note in told["notes"]) is more
    high = [answer["margin"]["available_kv_gib"][1] for answer in (told, named)]
    assert (high[0] > high[1] + 0.1) is more


def test_cuda_sees_what_nvml_tells_less_what_the_driver_keeps() -> None:
    whole = Gpu(0, "NVIDIA A100-SXM4-80GB", total_bytes=81920 << 20, reserved_bytes=870 << 20)
    assert whole.cuda_bytes == 81050 << 20
    assert Gpu(0, "old driver", total_bytes=81920 << 20).cuda_bytes == 81920 << 20
    assert Gpu(0, "GB10").cuda_bytes is None


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("4090", "NVIDIA GeForce RTX 4090"),
        ("RTX4090", "NVIDIA GeForce RTX 4090"),
        ("rtx3090ti", "NVIDIA GeForce RTX 3090 Ti"),
        ("4080 super", "NVIDIA GeForce RTX 4080 SUPER"),
        ("3060 12G", "NVIDIA GeForce RTX 3060 12GB"),
        ("5090D", "NVIDIA GeForce RTX 5090 D"),
        ("A100 80GB SXM", "NVIDIA A100-SXM4-80GB"),
        ("A100 40GB SXM", "NVIDIA A100-SXM4-40GB"),
        ("A100 SXM", "NVIDIA A100-SXM4-80GB"),
        ("V100 32GB SXM", "Tesla V100-SXM2-32GB"),
        ("H100 80GB SXM", "NVIDIA H100 80GB HBM3"),
        ("B200 SXM", "NVIDIA B200"),
    ],
)
def test_a_card_is_known_as_people_call_it(said, name):
    found = find(said)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    "said", ["4090 Laptop", "4090 super", "5090 Ti", "1080", "24GB", "SXM", "80GB PCIe", "foo 4090"]
)
def test_words_that_no_card_has_name_none(said):
    assert find(said) is None


@pytest.mark.parametrize(
    ("name", "gib", "capability", "sliced"),
    [
        ("NVIDIA A40-48Q", 47.74, 8.6, False),  # more than CUDA sees of the card itself
        ("GRID A100D-40C", 39.78, 8.0, False),
        ("NVIDIA H100XM-80C", 79.57, 9.0, False),
        ("NVIDIA A100-3-20C", 19.89, 8.0, True),  # a MIG slice of it
        ("v100d-32q", 31.83, 7.0, False),
    ],
)
def test_a_virtual_gpu_has_the_memory_of_its_profile(name, gib, capability, sliced):
    card = find(name)
    assert (card.total_gib, card.capability, card.slice, card.link) == (gib, capability, sliced, "pcie")
    assert find(card.name) == card


@pytest.mark.parametrize("name", ["NVIDIA A16-16B", "NVIDIA A40-96Q", "NVIDIA A999-8Q"])
def test_a_profile_without_cuda_or_of_no_card_is_none(name):
    assert find(name) is None


def test_a_host_says_how_much_a_virtual_gpu_has():
    assert find("NVIDIA A40-48Q", 46.9).total_gib == 46.9


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}


def judged(version, name, quantization, flags=""):
    v, a = as_version(version), arch({**LLAMA_8B, "quantization_config": quantization} if quantization else LLAMA_8B)
    gpu = find(name) or elsewhere(name)
    words = ["vllm", "serve", "m", *flags.split()]
    told = judge(a, resolve(parse_launch(words, v), v, a, gpu, gpu.total_gib, 1), gpu)
    return [(r.flag, r.found) for r in told.refusals], [one.on for one in told.depends]


STATIC = {"quant_method": "fp8", "activation_scheme": "static"}


@pytest.mark.parametrize(
    ("version", "quantization", "flags", "told"),
    [
        ("0.5.3", STATIC, "", [("quantization_config", "fp8 on AMD Instinct MI300X")]),
        ("0.6.4", STATIC, "", []),
        ("0.5.3", None, "--quantization fp8", [("--quantization", "fp8 on AMD Instinct MI300X")]),
        ("0.5.3", GPTQ, "", []),
        ("0.8.5", GPTQ, "", [("quantization_config", "gptq_bitblas on AMD Instinct MI300X")]),
        ("0.8.5", GPTQ, "--quantization gptq", []),
        ("0.9.0", GPTQ, "", []),
    ],
)  # fmt: skip
def test_a_method_that_a_release_lists_for_other_devices_alone_ends_the_start(version, quantization, flags, told):
    assert judged(version, "MI300X", quantization, flags) == (told, [])


@pytest.mark.parametrize(
    ("version", "name", "flags", "told"),
    [
        ("0.8.5", "Tesla T4", "", ["whether bitblas is installed"]),
        ("0.8.5", "Tesla T4", "--quantization gptq", []),
        ("0.8.5", "A100-SXM4-80GB", "", []),  # Marlin takes it
        ("0.9.0", "Tesla T4", "", []),
    ],
)
def test_gptq_below_ampere_asks_for_a_package_of_its_own_in_one_release(version, name, flags, told):
    refused, depends = judged(version, name, GPTQ, f"{flags} --dtype half")
    assert (refused, depends) == ([], told)
