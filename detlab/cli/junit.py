"""Cases as JUnit XML, the form in which most CI systems take results of tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree

from detlab.cli.cases import Case
from detlab.text import visible

_TAGS = {"fail": "failure", "error": "error", "skipped": "skipped"}


def junit_xml(suite: str, cases: Sequence[Case]) -> str:
    """Write cases as one test suite.

    The attributes are those of the JUnit schema of Jenkins' xUnit plugin, which GitLab, Azure and the
    actions for GitHub read too.
    """
    counts = Counter(case.outcome for case in cases)
    numbers = {
        "tests": str(len(cases)),
        "failures": str(counts["fail"]),
        "errors": str(counts["error"]),
        "skipped": str(counts["skipped"]),
    }
    root = ElementTree.Element("testsuites", numbers)
    element = ElementTree.SubElement(root, "testsuite", {"name": visible(suite), **numbers})
    for case in cases:
        _add(element, suite, case)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode", xml_declaration=False)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _add(suite: ElementTree.Element, name: str, case: Case) -> None:
    found = ElementTree.SubElement(
        suite, "testcase", {"classname": visible(name), "name": visible(case.name)}
    )
    lines = "\n".join(map(visible, (case.says, *case.more)))
    tag = _TAGS.get(case.outcome)
    if tag:
        ElementTree.SubElement(found, tag, {"message": visible(case.says)}).text = lines
    elif lines:
        ElementTree.SubElement(found, "system-out").text = lines
