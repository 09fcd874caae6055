"""The diagnosis as JUnit's XML, which every CI shows: a suite for each service, a test for each question answered."""

import re
from collections.abc import Sequence
from xml.etree import ElementTree as Xml

from vllm_doctor.records.finding import Diagnosis, Finding, subject
from vllm_doctor.records.verdict import Confidence, Verdict
from vllm_doctor.redact.visible import visible
from vllm_doctor.render.instructions import deed
from vllm_doctor.render.sentences import aside, detail_and_why
from vllm_doctor.render.vocabulary import CERTAINTIES, HEADLINES

# What `visible` leaves and XML does not have.
_NOT_XML = re.compile("[\\ufffe\\uffff]")


def text(judged: Sequence[Diagnosis]) -> str:
    """A finding is a failure, one that is only possible is skipped, and what could not be judged is an error."""
    suites = Xml.Element("testsuites", name="vllm-doctor")
    for diagnosis in judged:
        _suite(suites, diagnosis)
    Xml.indent(suites)
    made = Xml.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{_NOT_XML.sub("?", made)}\n'


def _suite(suites: Xml.Element, diagnosis: Diagnosis) -> None:
    name = visible(subject(diagnosis.subject), 200) or "vLLM"
    suite = Xml.SubElement(suites, "testsuite", name=name)
    roots = [one for one in diagnosis.findings if one.explained_by is None]
    for finding in roots:
        _case(suite, name, finding, diagnosis)
    if not roots:
        case = Xml.SubElement(suite, "testcase", classname=name, name="diagnosis")
        last = diagnosis.path[-1].because if diagnosis.path else ""
        if diagnosis.verdict is Verdict.UNKNOWN:
            Xml.SubElement(case, "error", message=HEADLINES[diagnosis.verdict]).text = visible(last, 600)
        elif diagnosis.verdict is Verdict.NOT_APPLICABLE:
            Xml.SubElement(case, "skipped", message=visible(last, 600) or HEADLINES[diagnosis.verdict])
    counted = {"tests": "testcase", "failures": "testcase/failure", "errors": "testcase/error"}
    for attribute, where in {**counted, "skipped": "testcase/skipped"}.items():
        suite.set(attribute, str(len(suite.findall(where))))


def _case(suite: Xml.Element, name: str, finding: Finding, diagnosis: Diagnosis) -> None:
    case = Xml.SubElement(suite, "testcase", classname=name, name=f"{finding.code} {visible(finding.title, 300)}")
    if finding.confidence is Confidence.POSSIBLE:
        Xml.SubElement(case, "skipped", message=f"may be the cause: {visible(finding.title, 300)}")
        return
    failure = Xml.SubElement(case, "failure", type=finding.code, message=visible(finding.title, 300))
    failure.text = "\n".join(_told(finding, diagnosis))


def _told(finding: Finding, diagnosis: Diagnosis) -> list[str]:
    first = bool(diagnosis.findings) and finding is diagnosis.findings[0]
    repair = diagnosis.repair if first else None
    detail, why = detail_and_why(finding)
    told = [visible(detail, 400)] if detail else []
    told.append(f"why: {visible(why, 1000)}")
    if repair is not None:
        told += [f"where: {visible(repair.where, 600)}"] if repair.where else []
        told += [f"now: {visible(one, 400)}" for one in repair.now]
        told += [f"do: {visible(one, 2000)}" for one in repair.commands]
    if repair is None or not repair.commands:
        for change in finding.changes[:3]:
            command = f": {visible(change.command, 400)}" if change.command else ""
            told.append(f"do: {visible(deed(change), 400)}{visible(aside(change), 200)}{command}")
    told.append(f"sure: {CERTAINTIES[finding.confidence]}")
    told += [
        f"{visible(e.source, 300)} {visible(e.locator, 200)}: {visible(e.excerpt, 400)}" for e in finding.evidence[:6]
    ]
    return told
