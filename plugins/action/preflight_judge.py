# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""Judge every host of the play on the controller, print one table, and fail once.

It runs once for the whole play. The checks and the compatibility table are the doctor's own
(`vllm_doctor.preflight`, `vllm_doctor/knowledge/compat.json`), so that roles and doctor cannot disagree.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from ansible import context
from ansible.constants import config
from ansible.errors import AnsibleActionFail
from ansible.inventory.helpers import sort_groups
from ansible.inventory.host import Host
from ansible.module_utils.common.yaml import yaml_load
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.splitter import parse_kv
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

REPOSITORY = Path(__file__).resolve().parents[2]
if (REPOSITORY / "vllm_doctor").is_dir() and str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))  # a checkout needs no installed package on the controller

from vllm_doctor.knowledge.compat import table  # noqa: E402
from vllm_doctor.preflight import host_table, locks, running  # noqa: E402
from vllm_doctor.preflight import intent as wants  # noqa: E402
from vllm_doctor.preflight.checks import OF_VARIABLES, judge  # noqa: E402
from vllm_doctor.preflight.judged import Checked, HostToJudge, Intent, Result  # noqa: E402
from vllm_doctor.preflight.release import variant_answer  # noqa: E402
from vllm_doctor.preflight.sources import Definition, Sources  # noqa: E402
from vllm_doctor.preflight.variables import PLAYBOOKS, Option, Variables, options  # noqa: E402

MESSAGE = 240  # characters of somebody else's message in a cell of the table
SCREEN = config.get_config_value("DEFAULT_STDOUT_CALLBACK")
# A lookup runs on the controller and waits for no fact: what fails now fails later, on hosts that are half done.
LOOKUP = re.compile(r"The lookup plugin '\S+' failed.*", re.DOTALL)
FLAGS = REPOSITORY / "vllm_doctor" / "knowledge" / "inventory_vars.json"


CARDS = ("preflight_gpus", "preflight_gpu_count", "vllm_unit_template")  # what a group of cards is for
UNUSABLE = {"variable type", "reference"}  # nothing can be composed of such variables
EXTRA = "preflight_extra_variables"  # the user's own, which begin as ours do
NOT_ROOT = Checked(
    "root",
    Result.FAIL,
    "the tasks do not run as root",
    "root: packages, units and secrets are root's",
    "set ansible_become: true, with --ask-become-pass where sudo wants a password; or ansible_user: root",
)


def no_answer(answer: Mapping[str, Any], *, skip: bool) -> Checked:
    """What is said of a host without facts: it is not there, or its user may not ask them."""
    said = " ".join(str(answer.get("msg") or "nothing was asked of it").split())
    said = said if len(said) <= MESSAGE else said[:MESSAGE] + " …"
    if answer.get("unreachable") or not answer:
        action = "bring it up, or go on without it: -e site_unreachable=skip"
        if skip:
            action = "nothing is done on it; run again with --limit when it is back"
        return Checked("connection", Result.WARN if skip else Result.FAIL, said, "a host that answers", action)
    action = (
        "let its user become root (ansible_become, sudo's rules, --ask-become-pass), then ask by hand: ansible -m ping"
    )
    return Checked("facts", Result.FAIL, said, "its facts", action)


def beside(other: Mapping[str, Any], *, check: bool) -> Checked:
    """What is said of a host that another run has: nothing else, as all of it may be changing."""
    verdict = Result.WARN if check else Result.FAIL
    return Checked("another run", verdict, running.said(other), "one run at a time on a host", running.way_out(other))


def same_machine(host: str, boots: Mapping[str, str | None]) -> Iterator[Checked]:
    """Refuse a second name of one machine: two runs of each task at once would fight for its packages and services."""
    first = next((name for name, boot in boots.items() if boot is not None and boot == boots[host]), host)
    if first != host:
        action = f"correct ansible_host of one of them, or take {host} out of the inventory"
        yield Checked(
            "same machine",
            Result.FAIL,
            f"{host} leads to the machine that {first} is",
            "a machine for each name",
            action,
        )


def two_groups(
    host: str, definitions: Iterable[Definition], sources: Sources, groups: Mapping[str, Any]
) -> Iterator[Checked]:
    """Give a row where two groups of one rank say different cards of a host, and nothing stronger settles it.

    `groups` are the host's in the inventory, by name: each has depth and priority.
    """
    said: dict[str, list[tuple[Definition, Any]]] = {}
    places: dict[str, list[str]] = {}
    for item in definitions:
        if item.variable in CARDS and item.variable not in sources.typed:
            said.setdefault(item.variable, []).append((item, groups.get(_owner(item.path))))
    for variable, items in said.items():
        last = items[-1][1]
        if last is None:
            continue  # host_vars, the inventory itself or a file of -e has the last word
        level = [one for one in items if one[1] and (one[1].depth, one[1].priority) == (last.depth, last.priority)]
        if len({group.name for _, group in level}) > 1 and len({yaml.serialize(item.node) for item, _ in level}) > 1:
            where = " and ".join(item.at(sources.base).rpartition(":")[0] for item, _ in level)
            places.setdefault(where, []).append(variable)
    for where, variables in places.items():
        action = f"take {host} out of one of the two, or say it in host_vars/{host}.yml"
        yield Checked("two groups", Result.FAIL, f"{', '.join(variables)} in {where}", "one group of cards", action)


def _owner(path: Path) -> str:
    """The group whose file of variables this is; empty for others."""
    parts = path.parts
    return Path(parts[parts.index("group_vars") + 1]).stem if "group_vars" in parts else ""


class ActionModule(ActionBase):
    """`preflight_judge: {stage: variables}` before any host is asked, `{stage: facts}` after.

    `also` names a fact of the hosts: what other roles refuse, as {found, needed, do} and at will {check}. It stands in
    the same table. After the facts stage `variants` is the build that fits each host's driver, as it is or is to be,
    by host and release. `{stage: typed}` judges the names after -e alone: what a playbook without the judge would pass
    over; `{stage: types}` refuses nothing: `unusable` are the hosts whose variables
    cannot be read as what they are to be, so that nobody composes anything from them before the table is said.
    """

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """One table over all hosts of the play."""
        task_vars = task_vars or {}
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(
            {
                "stage": {"type": "str", "required": True, "choices": ["types", "typed", "variables", "facts"]},
                "also": {"type": "str", "default": ""},
                "today": {"type": "str"},
            }
        )
        hosts = task_vars.get("ansible_play_hosts_all") or [task_vars["inventory_hostname"]]
        today = _day(arguments["today"]) if arguments["today"] else date.today()
        self._also = arguments["also"]
        judge_host = {
            "types": self._types,
            "typed": self._names_typed,
            "variables": self._variables,
            "facts": self._facts,
        }[arguments["stage"]]
        self._specs, self._defaults = _roles()
        self._names = {option.name for option in self._specs}
        flags = json.loads(FLAGS.read_text(encoding="utf-8")) if FLAGS.exists() else {}
        self._flags = {name: variable for name, variable in flags.items() if isinstance(variable, str)}
        self._sources = Sources(
            [Path(path) for path in task_vars.get("ansible_inventory_sources") or []],
            Path(task_vars["playbook_dir"]) if task_vars.get("playbook_dir") else None,
            [Path(word[1:]) for word in map(str, context.CLIARGS.get("extra_vars") or ()) if word.startswith("@")],
            frozenset(_typed(self._loader)),
        )
        self._variants: dict[str, dict[str, dict[str, str]]] = {}
        self._asked: dict[str, Mapping[str, Any]] = {}
        self._said_by_play: tuple[dict[str, Any], dict[str, Exception]] | None = None
        with TemporaryDirectory(prefix="preflight-") as self._kept:
            rows = {host: judge_host(host, task_vars, today) for host in hosts}
        if arguments["stage"] == "facts":
            boots = {host: self._answer(host, task_vars).get("facts", {}).get("boot") for host in hosts}
            rows = {host: (*found, *same_machine(host, boots)) for host, found in rows.items()}
        if arguments["stage"] == "types":
            result.update(
                changed=False,
                unusable=[host for host, found in rows.items() if UNUSABLE & {row.check for row in found}],
            )
            return result
        rows["inventory"] = self._strays(task_vars) if arguments["stage"] != "typed" else ()
        failed = host_table.failures(rows)
        text = host_table.table(rows)
        result.update(changed=False, msg=f"{len(hosts)} hosts judged, none refused.\n{text}".strip())
        if failed:
            result.update(failed=True)
            result["msg"] = f"{failed} of {len(hosts)} hosts refused; nothing was changed on any host.\n\n{text}"
        elif warnings := host_table.table(rows, (Result.WARN,)):
            self._display.warning(f"{len(hosts)} hosts judged, none refused.\n{warnings}", formatted=True)
        if self._variants:
            result["variants"] = self._variants
        if not failed or self._display.verbosity or SCREEN == "once":  # people have the table, and that screen knows it
            result["rows"] = [{"host": host, **_plain(row)} for host, of_host in rows.items() for row in of_host]
        return result

    def _values(self, host: str, task_vars: Mapping[str, Any]) -> dict[str, Any]:
        """The host's variables by Ansible's precedence: role defaults, its inventory, what the play or -e sets for all.

        `hostvars` knows the inventory only, `task_vars` everything but for one host. A value of the current host that
        is neither its inventory's nor a default came from the play, and holds for every host.
        """
        hosts_own = self._of(host, task_vars)
        values, undefined = self._templated(hosts_own, hosts_own)
        play, of_play = self._of_play(task_vars)
        self._undefined = {**undefined, **of_play}
        return {**self._defaults, **values, **play}

    def _of(self, host: str, task_vars: Mapping[str, Any]) -> Mapping[str, Any]:
        """What `hostvars` has of a host, composed once: it composes all of it anew at each question."""
        if host not in self._asked:
            self._asked[host] = task_vars["hostvars"][host]
        return self._asked[host]

    def _of_play(self, task_vars: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Exception]]:
        """What the play or -e sets for all, and what of it cannot be templated; the same for every host."""
        if self._said_by_play is None:
            here = self._of(task_vars["inventory_hostname"], task_vars)
            own, undefined = self._templated(here, [name for name in self._names if name in here])
            common, also = self._templated(task_vars, [name for name in self._names if name in task_vars])
            play = {name: value for name, value in common.items() if value != own.get(name, self._defaults.get(name))}
            self._said_by_play = play, undefined | also
        return self._said_by_play

    def _templated(
        self, values: Mapping[str, Any], names: Iterable[str]
    ) -> tuple[dict[str, Any], dict[str, Exception]]:
        """Those of the values that can be templated now, and why others cannot: that is Ansible's to report."""
        found: dict[str, Any] = {}
        undefined: dict[str, Exception] = {}
        for name in names:
            try:
                found[name] = self._templar.template(values[name])
            except Exception as error:  # noqa: BLE001
                self._display.vvv(f"preflight: {name}: {error}")
                undefined[name] = error
        return found, undefined

    def _references(self, definitions: Iterable[Definition]) -> Iterator[Checked]:
        """Complaints about what refers to nothing; facts are known later."""
        for item in definitions:
            error = str(self._undefined.get(item.variable, ""))
            missing = re.search(r"'(\w+)' is undefined", error)
            if item.variable in self._names and missing and not missing[1].startswith("ansible_"):
                found = f"{item.variable} refers to {missing[1]}"
                action = f"{item.at(self._sources.base)}: correct it, or set {missing[1]}"
                yield Checked("reference", Result.FAIL, found, "a variable that is set", action)
            elif item.variable in self._names and (failed := LOOKUP.search(error)):
                said = " ".join(failed[0].split())[:MESSAGE]
                action = f"{item.at(self._sources.base)}: correct it, or put there what it reads"
                yield Checked("lookup", Result.FAIL, f"{item.variable}: {said}", "a value that can be read", action)

    def _strays(self, task_vars: Mapping[str, Any]) -> tuple[Checked, ...]:
        """Warnings about files that no host and no group takes."""
        everything = task_vars.get("groups") or {}
        return tuple(
            Checked("file of variables", Result.WARN, path, "the name of a host or group", "rename it, or take it away")
            for path in self._sources.strays(everything.get("all", ()), everything)
        )

    def _names_typed(self, host: str, task_vars: Mapping[str, Any], _today: date) -> tuple[Checked, ...]:
        """What was given with -e and is no variable of anything."""
        given = load_extra_vars(self._loader)
        places = {item.variable: item for item in self._sources.given()}
        of_host = self._of(host, task_vars)
        own, _ = self._templated(of_host, [name for name in (EXTRA,) if name in of_host])
        allowed = [str(name) for name in own.get(EXTRA) or []]
        return tuple(Variables(self._specs, self._sources, self._flags).names(given, places, allowed))

    def _types(self, host: str, task_vars: Mapping[str, Any], _today: date) -> tuple[Checked, ...]:
        """What is wrong with the variables as such: their names, types, references, secrets."""
        self._said = values = self._values(host, task_vars)
        known = self._known(host)
        sources, groups = self._sources, _groups(known)
        # Only what somebody has written down is judged: facts and registered results have role prefixes too.
        definitions = sources.definitions(host, groups)
        # An inventory may be a program's answer, or a database's: its own variables are in no file.
        own = {name for one in (*known.get_groups(), known) for name in one.vars} if known else set()
        written = {item.variable for item in definitions} | set(load_extra_vars(self._loader)) | own
        self._written = {name: values[name] for name in written if name in values}
        self._judge = Variables(self._specs, sources, self._flags)
        allowed = [str(name) for name in values.get(EXTRA) or []]
        between = self._between_groups(host, definitions)
        return (*self._judge.judge(host, groups, self._written, allowed), *self._references(definitions), *between)

    def _between_groups(self, host: str, definitions: Iterable[Definition]) -> Iterator[Checked]:
        """Refuse a host in two groups of cards: of groups on one level the last in the alphabet would win."""
        known = self._known(host)
        groups = {group.name: group for group in known.get_groups()} if known else {}
        return two_groups(host, definitions, self._sources, groups)

    def _known(self, host: str) -> Host | None:
        """What the inventory itself has of a host: its groups, and the variables that are in no file of variables."""
        found: Host | None = self._task.get_variable_manager()._inventory.get_host(host)  # noqa: SLF001
        return found

    def _variables(self, host: str, task_vars: Mapping[str, Any], today: date) -> tuple[Checked, ...]:
        rows = self._types(host, task_vars, today)
        definitions = self._sources.definitions(host, _groups(self._known(host)))
        values = {**self._said, **dict.fromkeys(self._judge.mistyped(self._written))}
        intent = _locked(wants.intent(values, table(), self._flags), values)
        case = HostToJudge(intent, wants.declared_host(intent, table(), self._configs(values, {})), table(), today)
        judged = [row for row in judge(case, OF_VARIABLES) if row.verdict in {Result.FAIL, Result.WARN}]
        told = (*wants.contradictions(values, intent, table()), *self._missing(values), *judged)
        typed = self._judge.typed_secrets(_typed(self._loader))
        located = (*rows, *typed, *(self._sources.located(row, definitions) for row in told))
        return (*located, *self._others(host, task_vars, definitions, located))

    def _others(
        self, host: str, task_vars: Mapping[str, Any], definitions: Sequence[Definition], told: Sequence[Checked]
    ) -> tuple[Checked, ...]:
        """What other roles refuse on this host, without what is refused already."""
        rows = self._of(host, task_vars).get(self._also) or [] if self._also else []
        made = [
            Checked(str(row.get("check", "launch")), Result.FAIL, str(row["found"]), str(row["needed"]), str(row["do"]))
            for row in rows
        ]
        return tuple(self._sources.located(row, definitions) for row in host_table.others(made, told))

    def _facts(self, host: str, task_vars: Mapping[str, Any], today: date) -> tuple[Checked, ...]:
        values = self._values(host, task_vars)
        answer = self._answer(host, task_vars)
        if "facts" not in answer:
            return (no_answer(answer, skip=values.get("preflight_unreachable") == "skip"),)
        if answer["facts"].get("root") is False:
            return (NOT_ROOT,)
        if other := (answer.get("run") or {}).get("other"):
            return (beside(other, check=self._task.check_mode),)
        intent = replace(_locked(wants.intent(values, table(), self._flags), values), starts=_starts(task_vars))
        configs = self._configs(values, answer["facts"].get("models") or {})
        case = HostToJudge(intent, wants.host(answer["facts"], configs), table(), today)
        rows = judge(case)
        if intent.vllm and values.get("vllm_variant", "auto") == "auto":
            self._variants[host] = {
                version: variant_answer(replace(case, intent=replace(intent, vllm_version=version)))
                for version in _versions(values)
            }
        definitions = self._sources.definitions(host, _groups(self._known(host)))
        located = tuple(self._sources.located(row, definitions) for row in rows)
        if since := answer["facts"].get("drained"):
            action = f"playbooks/undrain.yml -l {host} puts it into service again"
            located += (Checked("drained", Result.WARN, str(since), "nothing: its services are not started", action),)
        return (*located, *self._others(host, task_vars, definitions, located))

    def _answer(self, host: str, task_vars: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the host said of itself; nothing where it was not asked."""
        answers = (self._of(host, task_vars).get(name) for name in ("preflight_host", "__preflight_answer"))
        return next((answer for answer in answers if isinstance(answer, dict)), {})

    def _missing(self, values: Mapping[str, Any]) -> Iterator[Checked]:
        """Complaints about model configurations that are not on the controller."""
        for model, path in (values.get("preflight_model_configs") or {}).items():
            if not Path(self._loader.path_dwim(str(path))).exists():
                found = f"{path} of {model} is not on the controller"
                action = "correct the path in preflight_model_configs, or take it out"
                yield Checked("model configuration", Result.FAIL, found, "a config.json, or its folder", action)

    def _configs(self, values: Mapping[str, Any], read: Mapping[str, str]) -> dict[str, str]:
        """Model to a config.json on the controller: what the host has goes before what the inventory names.

        `read` is model to text; one file a text, so that hosts with the same model share one plan.
        """
        named = values.get("preflight_model_configs") or {}
        configs = {str(model): self._loader.path_dwim(str(path)) for model, path in named.items()}
        for model, text in read.items():
            path = Path(self._kept) / sha256(text.encode()).hexdigest()[:12] / "config.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            configs[model] = str(path)
        return configs


def _versions(values: Mapping[str, Any]) -> list[str]:
    """The releases that a host is to have: its own, and those of services with one of their own."""
    services = [one for one in values.get("vllm_instances") or [] if isinstance(one, dict)]
    named = [values.get("vllm_version"), *(one.get("version") for one in services)]
    return list(dict.fromkeys(str(name) for name in named if name))


def _starts(task_vars: Mapping[str, Any]) -> bool:
    """Whether this run of site.yml comes to the services: its stages vllm and config are one play."""
    stages = {"vllm", "config"}
    asked, left_out = (set(task_vars.get(f"ansible_{name}_tags") or ()) for name in ("run", "skip"))
    return bool((stages | {"all", "tagged"}) & asked) and not stages & left_out


def _day(text: str) -> date:
    """The day that preflight_today names."""
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise AnsibleActionFail(
            f"preflight_today: {text!r} is no day; write it as YYYY-MM-DD, or take it out"
        ) from error


def _groups(known: Host | None) -> list[str]:
    """The groups of a host, the strongest last: the deeper one, then by ansible_group_priority and name."""
    return [str(group.name) for group in sort_groups(known.get_groups())] if known else []


def _roles() -> tuple[list[Option], dict[str, Any]]:
    """(options, plain defaults) of every role beside this one; of the playbooks, whose defaults are theirs, options."""
    own = yaml_load((REPOSITORY / "playbooks" / "meta" / "variables.yml").read_text(encoding="utf-8"))
    known: list[Option] = [*options(PLAYBOOKS, {"argument_specs": {"main": {"options": own}}})]
    defaults: dict[str, Any] = {}
    for role in sorted((REPOSITORY / "roles").iterdir()):
        specs = role / "meta" / "argument_specs.yml"
        if specs.is_file():
            try:
                known += options(role.name, yaml_load(specs.read_text(encoding="utf-8")) or {})
            except yaml.YAMLError as error:
                raise AnsibleActionFail(f"{specs}: {error}") from error
        values = role / "defaults" / "main.yml"
        if values.is_file():
            found = yaml_load(values.read_text(encoding="utf-8")) or {}
            defaults.update({name: value for name, value in found.items() if "{{" not in str(value)})
    return known, defaults


def _typed(loader: DataLoader) -> dict[str, Any]:
    """What was written out after -e; @FILE is not."""
    words = [str(word) for word in context.CLIARGS.get("extra_vars") or () if not str(word).startswith("@")]
    found: dict[str, Any] = {}
    for word in words:
        values = loader.load(word) if word.lstrip()[:1] in {"{", "["} else parse_kv(word)
        found.update(values if isinstance(values, dict) else {})
    return found


def _locked(intent: Intent, values: Mapping[str, Any]) -> Intent:
    """Add the hash locks that there are: `auto` chooses among them, and what they take is what can be installed."""
    folder = Path(values.get("vllm_locks_dir") or REPOSITORY / "roles" / "vllm" / "files" / "locks")
    return replace(intent, locks=locks.read(folder))


def _plain(row: Checked) -> dict[str, str]:
    return {
        "check": row.check,
        "verdict": str(row.verdict),
        "found": row.found,
        "needed": row.needed,
        "action": row.action,
    }
