"""What the tests of the explorer share: small comparisons, clicks, and a reader of HTML."""

from html.parser import HTMLParser

from detlab.comparison import compare
from detlab.samples import sample_path
from detlab.testing import Call, make_run
from tests.views.stories import story, with_metric

RED, GREEN = "<script>alert(1)</script>", "\x1b[31m<img src=x onerror=alert(2)>\u202e"
HOSTILE = (RED, GREEN)


def race():
    """Compare the runs of the sample with a race, which have two steps, four ranks, metrics and a capture."""
    return compare(sample_path("race") / "a", sample_path("race") / "b")


def equal():
    """Compare two runs that do the same."""
    return compare(*(story(label, {0: ["y", "y"], 1: ["y", "y"]}) for label in "ab"))


def diverged(**options):
    """Compare two ranks over three steps: rank 1 diverges in step 2, at its call 4; both logged a loss."""
    a = story("a", {0: ["y", "y", "y"], 1: ["y", "y", "y"]}, **options)
    b = story("b", {0: ["y", "y", "y"], 1: ["y", "z", "y"]}, **options)
    losses = [1.5, 1.25, 1.0], [1.5, 1.25, 1.0000000000000002]
    return compare(*(with_metric(run, loss) for run, loss in zip((a, b), losses, strict=True)))


ORIGIN = "2/0/backward/lin/aten.mm.default#0"
"""The site of the call that diverges in `diverged`."""


def one_call_more():
    """Run b makes a call before run a's two, so that its site is also that of the first call of both."""
    both = [Call("aten.mm.default", "lin", [f"x{n}"], [f"y{n}"]) for n in range(2)]
    more = Call("aten.mm.default", "lin", ["x"], ["y"])
    return compare(make_run({0: both}), make_run({0: [more, *both]}))


def act(panel, **data):
    """Click a button of a panel, as the browser tells it."""
    panel._handle_custom_msg({"type": "act", "data": data}, [])


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.buttons, self.words = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "button":
            self.buttons.append({n[5:]: v for n, v in attrs if n.startswith("data-")})

    def handle_data(self, data):
        self.words.append(data)


def read(markup):
    """Read HTML: its ``tags`` with their attributes, the data of its ``buttons``, its ``words``."""
    reader = _Reader()
    reader.feed(markup)
    reader.close()
    reader.text = " ".join(" ".join(reader.words).split())
    return reader


def assert_only_text(markup):
    """Expect no script, no event handler, no address outside, and no character that steers a terminal."""
    for tag, attributes in read(markup).tags:
        assert tag not in ("script", "iframe", "object", "embed", "link", "base", "form", "meta"), tag
        assert not [name for name in attributes if name.startswith("on")], attributes
        assert all(attributes[name].startswith("data:") for name in ("src", "href") if name in attributes)
    assert not set("\x1b\u202e\x07") & set(markup)
