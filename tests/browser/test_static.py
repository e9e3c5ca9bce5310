"""What is left without a kernel, without scripts, without styles: the verdict, the findings, a picture."""

from __future__ import annotations

import nbformat
import pytest
from nbconvert import HTMLExporter

from tests.browser.audit import faults, show, violations
from tests.browser.lab import LIMIT_MS, save, shut_down
from tests.browser.panels import CELLS, PANELS, output_of

pytestmark = pytest.mark.browser

WORDS = {
    "comparison": ("DIVERGED", "aten.index_put.default"),
    "explorer": ("DIVERGED", "aten.index_put.default", "receiver", "grad norm"),
    "map": ("DIVERGED", "origin", "receiver"),
    "findings": ("kernel", "aten.index_put.default"),
    "details": ("aten.index_put.default", "output 0", "differs"),
    "metrics": ("grad norm", "lm loss"),
    "replay": ("aten.index_put.default", "dl.replay("),
    "checks": ("replicas",),
}
"""What each panel must still say."""
WITH_PICTURE = ("explorer", "map", "metrics")


@pytest.fixture(scope="module")
def notebook(lab, open_page):
    """Display every panel, save the notebook as JupyterLab does, and end its kernel."""
    page = open_page().page
    name = lab.write("static.ipynb", *CELLS)
    lab.run(page, name)
    output_of(page, "checks").get_by_role("button", name="Cancel").wait_for(timeout=LIMIT_MS)
    save(page)
    shut_down(page)
    page.close()
    return name


@pytest.fixture(scope="module", params=["own", "colleague"])
def reopened(request, lab, open_page, notebook):
    """Open it with a kernel that has run nothing: where it was signed, and as a colleague does, unsigned."""
    if request.param == "colleague":
        read = nbformat.read(lab.folder / notebook, as_version=4)
        read.cells.append(nbformat.v4.new_code_cell("another"))
        nbformat.write(read, lab.folder / "colleague.ipynb")
        notebook = "colleague.ipynb"
    watched = open_page(1200, 2400)
    watched.expected = "widget model not found"  # what JupyterLab says where a kernel is gone
    page = watched.page
    lab.open(page, notebook)
    output_of(page, "map").locator("img").first.wait_for(timeout=LIMIT_MS)
    return page


@pytest.fixture(scope="module")
def exported(lab, open_page, notebook, tmp_path_factory):
    """Convert it to HTML without widget state, and open that from its file."""
    read = nbformat.read(lab.folder / notebook, as_version=4)
    assert "widgets" not in read.metadata
    # nbconvert's own page asks for these two elsewhere; nothing of ours does
    exporter = HTMLExporter(require_js_url="", mathjax_url="")
    path = tmp_path_factory.mktemp("exported") / "static.html"
    path.write_text(exporter.from_notebook_node(read)[0], "utf-8")
    page = open_page(1200, 2400).page
    page.goto(path.as_uri())
    return page


@pytest.fixture(scope="module")
def stripped(lab, open_page, notebook):
    """Show the HTML of the outputs on a page that runs no script and knows no style."""
    read = nbformat.read(lab.folder / notebook, as_version=4)
    bundles = [cell.outputs[-1]["data"] for cell in read.cells[1:]]
    shown = [bundle.get("text/html") or f"<pre>{bundle['text/plain']}</pre>" for bundle in bundles]
    page = open_page().page
    sections = zip(PANELS, shown, strict=True)
    page.evaluate(STRIP, "".join(f"<section id='{name}'>{text}</section>" for name, text in sections))
    return page


STRIP = """text => {
  const parsed = new DOMParser().parseFromString(text, 'text/html');
  parsed.querySelectorAll('script, style').forEach(each => each.remove());
  parsed.querySelectorAll('[style], [class]').forEach(each => {
    each.removeAttribute('style');
    each.removeAttribute('class');
  });
  document.body.replaceChildren(...parsed.body.childNodes);
}"""


def has_picture(place):
    """Say whether a picture is shown that is more than an icon, with words in its place."""
    return place.locator("img").evaluate_all(
        "all => all.some(each => each.complete && each.naturalWidth > 100 && each.alt)"
    )


@pytest.mark.parametrize("name", PANELS)
def test_a_notebook_opened_without_its_kernel_still_says_it(reopened, name):
    text = output_of(reopened, name).inner_text()
    assert not [word for word in WORDS[name] if word not in text], text
    assert name not in WITH_PICTURE or has_picture(output_of(reopened, name))


@pytest.mark.parametrize("name", PANELS)
def test_an_exported_notebook_says_it_offline(exported, name):
    output = exported.locator(".jp-Cell").nth(1 + list(PANELS).index(name)).locator(".jp-Cell-outputWrapper")
    text = output.inner_text()
    assert not [word for word in WORDS[name] if word not in text], text
    assert name not in WITH_PICTURE or has_picture(output)


@pytest.mark.parametrize("name", PANELS)
def test_a_host_that_strips_scripts_and_styles_still_says_it(stripped, name):
    text = stripped.locator(f"#{name}").inner_text()
    assert not [word for word in WORDS[name] if word not in text], text
    assert name not in WITH_PICTURE or has_picture(stripped.locator(f"#{name}"))


@pytest.mark.parametrize("width", [1200, 800])
def test_axe_finds_nothing_serious_in_what_is_left(reopened, width):
    reopened.set_viewport_size({"width": width, "height": 2400})
    found = []
    for name in PANELS:
        output_of(reopened, name).evaluate("(element, name) => { element.dataset.panel = name; }", name)
        found += violations(reopened, f"[data-panel={name}]")
    assert found == []


@pytest.mark.parametrize("width", [1200, 800])
def test_nothing_that_is_left_overlaps_is_cut_sticks_out_or_is_too_small(reopened, width):
    reopened.set_viewport_size({"width": width, "height": 2400})
    found = {}
    for name in PANELS:
        output_of(reopened, name).evaluate("(element, name) => { element.dataset.panel = name; }", name)
        show(reopened, f"static-{name}-{width}", f"[data-panel={name}]")
        found |= {
            f"{name}: {kind}": names
            for kind, names in faults(reopened, f"[data-panel={name}]", "div:has(> table)").items()
        }
    assert found == {}
