"""Scrape targets, alert rules and Alertmanager's configuration from the inventory."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

REPOSITORY = Path(__file__).resolve().parents[2]
if (REPOSITORY / "vllm_doctor").is_dir() and str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))  # a checkout needs no installed package on the controller

from vllm_doctor.knowledge.versions import parse_version  # noqa: E402
from vllm_doctor.monitor import rules  # noqa: E402
from vllm_doctor.monitor.dashboards import dashboards  # noqa: E402
from vllm_doctor.monitor.metric_names import NoCommonNameError  # noqa: E402

LOOPBACK = {"127.0.0.1", "localhost", "::1", "[::1]"}
LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,60}")
TAKEN = {"host", "unit", "model", "release", "card", "job", "instance", "severity", "alertname"}
NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
# An address without its port, or a port that is none, is refused by Alertmanager when it starts, and not before.
ADDRESS = re.compile(r"https?://[^\s/?#]+(?:[/?#]\S*)?")
SMARTHOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+):[0-9]{1,5}")
EVERY = {"0.0.0.0", "::", "[::]"}  # noqa: S104 - compared, not bound
SEVERITIES = ("critical", "warning", "info")
# What a message says, in Alertmanager's templates: of what fires, else of what is over. One message may be of several
# alerts, all of one name and service.
_FIRST = (
    "{{ with .Alerts.Firing }}{{ (index . 0).Annotations.summary }}"
    "{{ else }}{{ (index .Alerts 0).Annotations.summary }}{{ end }}"
)
_TITLE = (
    "{{ .Status | toUpper }} {{ .CommonLabels.host }} {{ .CommonLabels.unit }}: "
    + _FIRST
    + "{{ if gt (len .Alerts) 1 }} ({{ len .Alerts }} alerts){{ end }}"
)
_TEXT = (
    "{{ range .Alerts.Firing }}{{ .Annotations.summary }}\n{{ .Annotations.do }}\n{{ .Annotations.explain }}\n{{ end }}"
    "{{ range .Alerts.Resolved }}Resolved: {{ .Annotations.summary }}\n{{ end }}"
)
_SEVERITY = "{{ with .CommonLabels.severity }}{{ . }}{{ else }}critical{{ end }}"


def servers(hostvars: Mapping[str, Any], hosts: Iterable[str], here: str) -> list[dict[str, Any]]:
    """Give the targets of the job vllm as Prometheus' file_sd has them. Raises AnsibleFilterError for a server that
    only its own host reaches, and for two targets with one name."""
    found: list[dict[str, Any]] = []
    for host in hosts:
        told = hostvars[host]
        for unit in told.get("__vllm_units") or ():
            listens = str(unit["listens"])
            if listens in LOOPBACK and host != here:
                where = f"on {here}" if here else "elsewhere"
                raise AnsibleFilterError(
                    f"{host}: {unit['name']} listens on {listens}, and Prometheus is {where}: "
                    "set vllm_host to an address that it reaches; vllm_metrics_networks says who may read /metrics"
                )
            labels = {
                "host": host,
                "unit": f"{unit['name']}.service",
                "model": _model(unit),
                "release": str(unit["version"]),
                "card": str((told.get("preflight_gpus") or [""])[0]),
                "__scheme__": "https" if unit["tls"] else "http",
            }
            at = _address(told, host, listens if host == here else "", tls=bool(unit["tls"]))
            found.append({"targets": [f"{at}:{unit['port']}"], "labels": labels})
    return found


def exporters(
    hostvars: Mapping[str, Any], hosts: Iterable[str], here: str, here_listens: str = "127.0.0.1"
) -> list[dict[str, Any]]:
    """Give the targets of the jobs node and node-plain; `here_listens` is the address of the exporter on `here`."""
    found = []
    for host in hosts:
        told = hostvars[host]
        listens = here_listens if host == here else told.get("monitoring_exporter_listen")
        tls = bool(told.get("monitoring_tls_certfile")) and listens not in LOOPBACK
        at = _address(told, host, here_listens if host == here else "", tls=tls)
        labels = {"host": host, "__scheme__": "https" if tls else "http"}
        found.append({"targets": [f"{at}:9100"], "labels": labels})
    return found


def labelled(targets: Sequence[dict[str, Any]], more: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give the targets with the site's own labels. Raises AnsibleFilterError for a name that is none or is taken."""
    for name in more:
        if not LABEL.fullmatch(str(name)) or name in TAKEN:
            raise AnsibleFilterError(
                f"monitoring_labels: {str(name)[:60]!r}: a label is letters, digits and _, "
                f"and none of {', '.join(sorted(TAKEN))}"
            )
    own = {name: str(value) for name, value in more.items()}
    return [{**one, "labels": {**own, **one["labels"]}} for one in targets]


def releases(hostvars: Mapping[str, Any], hosts: Iterable[str]) -> list[str]:
    """Give the releases that the hosts run, each once."""
    return sorted({str(unit["version"]) for host in hosts for unit in hostvars[host].get("__vllm_units") or ()})


def _model(unit: Mapping[str, Any]) -> str:
    name = unit["arguments"].get("served-model-name")
    first = name[0] if isinstance(name, list) and name else name
    return str(first or unit["model"])


def _address(told: Mapping[str, Any], host: str, listens: str, *, tls: bool) -> str:
    """Where a host is asked; `listens` is the listener's address on Prometheus' own host, empty on others.

    A certificate has the host's name, so the own host is asked under it as others are.
    """
    if listens in LOOPBACK or (listens and not tls):
        given = "127.0.0.1" if listens in EVERY else listens
    else:
        given = str(told.get("monitoring_address") or told.get("ansible_host") or host)
    return f"[{given}]" if ":" in given and not given.startswith("[") else given


def _listed(value: str | Sequence[object]) -> list[str]:
    """The words of a list. Ansible takes `a,b` for one, and leaves the variable as it was written."""
    words: Sequence[object] = value.split(",") if isinstance(value, str) else value
    return [str(word).strip() for word in words]


def rules_text(wanted: Sequence[str], numbers: Mapping[str, Any], without: str | Sequence[str]) -> str:
    """Give the rules file for these releases."""
    known = [parse_version(one) for one in wanted]
    if not known or None in known:
        raise AnsibleFilterError(f"no release to make rules for: {', '.join(wanted) or 'no host has a service'}")
    try:
        out = _listed(without)
        return rules.text([one for one in known if one is not None], numbers=dict(numbers), without=out)
    except (NoCommonNameError, rules.PolicyError) as problem:
        raise AnsibleFilterError(f"monitoring_numbers, monitoring_without, vllm_version: {problem}") from None


def files(wanted: Sequence[str], numbers: Mapping[str, Any], without: str | Sequence[str]) -> list[dict[str, str]]:
    """Give rules and dashboards for these releases as files."""
    made = {"rules/vllm.rules.yml": rules_text(wanted, numbers, without)}
    known = [at for one in wanted if (at := parse_version(one)) is not None]
    made |= {f"dashboards/{name}": text for name, text in dashboards(known).items()}
    return [{"name": name, "text": text} for name, text in made.items()]


def alertmanager(receivers: Sequence[Mapping[str, Any]], folder: str) -> dict[str, Any]:
    """Give Alertmanager's configuration; secrets stay in files of `folder`."""
    names = [str(one["name"]) for one in receivers]
    wrong = [name for name in names if not NAME.fullmatch(name) or names.count(name) > 1 or name == "nobody"]
    if wrong:
        raise AnsibleFilterError(
            f"monitoring_receivers: {wrong[0]!r}: a name is letters, digits, - and _, and of one receiver"
        )
    routes = [
        {
            "receiver": one["name"],
            "matchers": [f'severity=~"{"|".join(_severities(one))}"'],
            "continue": True,
        }
        for one in receivers
    ]
    return {
        "route": {
            "receiver": "nobody",
            "group_by": ["alertname", "host", "unit"],
            "group_wait": "10s",
            "group_interval": "2m",
            "repeat_interval": "4h",
            "routes": routes,
        },
        "inhibit_rules": [
            {
                "source_matchers": ['alertname="VllmDown"'],
                "target_matchers": ['alertname=~"VllmRestarted|VllmMetricMissing"'],
                "equal": ["host", "unit"],
            },
            {"source_matchers": ['severity="critical"'], "target_matchers": ['severity=~"warning|info"'],
             "equal": ["alertname", "host", "unit", "code", "gpu", "pci"]},
        ],
        "receivers": [{"name": "nobody"}, *(_receiver(one, f"{folder}/{one['name']}") for one in receivers)],
    }  # fmt: skip


def _severities(one: Mapping[str, Any]) -> list[str]:
    told = _listed(one.get("severities") or SEVERITIES[:2])
    if set(told) - set(SEVERITIES):
        raise AnsibleFilterError(f"monitoring_receivers: {one['name']}: severities are of {', '.join(SEVERITIES)}")
    return told


def _receiver(one: Mapping[str, Any], secret: str) -> dict[str, Any]:
    def said(*words: str) -> dict[str, Any]:
        lacking = [word for word in words if not one.get(word)]
        if lacking:
            raise AnsibleFilterError(f"monitoring_receivers: {one['name']} ({one['type']}) lacks {', '.join(lacking)}")
        return {word: one[word] for word in words if word != "secret"}

    def formed(word: str, form: re.Pattern[str], needed: str) -> None:
        # The value is not told: an address may hold a token.
        if one.get(word) and not form.fullmatch(str(one[word])):
            what = f"{word} is not one"
            raise AnsibleFilterError(f"monitoring_receivers: {one['name']} ({one['type']}): {what}; needed: {needed}")

    formed("url", ADDRESS, "an address such as https://alerts.example.net/hook")
    formed("smarthost", SMARTHOST, "HOST:PORT, such as mail.example.net:587")
    kind, more = one["type"], {"send_resolved": True}
    if kind == "slack":
        said("secret")
        channel = {"channel": one["channel"]} if one.get("channel") else {}
        shown = {"title": _slack(_TITLE), "fallback": _slack(_TITLE), "text": _slack(_TEXT), **channel}
        return {"name": one["name"], "slack_configs": [{"api_url_file": secret, **shown, **more}]}
    if kind == "pagerduty":
        said("secret")
        shown = {"description": _TITLE, "details": {"alerts": _TEXT}, "severity": _SEVERITY}
        at = {"url": one["url"]} if one.get("url") else {}
        return {"name": one["name"], "pagerduty_configs": [{"routing_key_file": secret, **at, **shown, **more}]}
    if kind == "webhook":
        return {"name": one["name"], "webhook_configs": [{**said("url"), **more}]}
    account = {"auth_username": one["username"], "auth_password_file": secret} if one.get("secret") else {}
    shown = {"headers": {"Subject": _TITLE}, "html": "", "text": _TEXT, "require_tls": one.get("starttls", True)}
    return {
        "name": one["name"],
        "email_configs": [{**said("to", "from", "smarthost"), **account, **shown, **more}],
    }


def _slack(template: str) -> str:
    """The template with what Slack would read as a mention or a link written out in its texts."""
    signs = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"))
    written = "".join(f' | reReplaceAll "{sign}" "{word}"' for sign, word in signs)
    return re.sub(r"(\.(?:host|unit|summary|do|explain)) \}\}", rf"\1{written} }}}}", template)


class FilterModule:
    """The filters, as Ansible looks for them."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Name the filters."""
        return {
            "monitoring_servers": servers,
            "monitoring_exporters": exporters,
            "monitoring_labelled": labelled,
            "monitoring_releases": releases,
            "monitoring_rules": rules_text,
            "monitoring_alertmanager": alertmanager,
            "monitoring_files": files,
        }
