"""What the user chooses for a replay: capture, conditions, trials, and where they are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import ipywidgets

from detlab.captures import Capture
from detlab.errors import InputError
from detlab.kernel.conditions import offered
from detlab.views.text import html
from detlab.widgets.replay_captures import Offer, how_to_capture, option, ordered
from detlab.widgets.replay_panel_html import block

BASELINE: Final = "baseline"
_MAX_TRIALS: Final = 1_000_000
_LIMIT_S: Final = 600.0
"""That of `detlab.kernel.replay`, which is not imported here because it loads torch."""
_AS_CAPTURED: Final = "as captured"
_WRAPPED: Final = {"flex_flow": "row wrap", "align_items": "center", "grid_gap": "4px 16px"}

_ISOLATED: Final = "this kernel stays as it is, and can be used meanwhile"
_IN_KERNEL: Final = (
    "faster; leave this kernel idle: its threads and flags are set for the trials, then put back"
)


def _narrow(width: str) -> dict[str, Any]:
    return {"layout": {"width": width}, "style": {"description_width": "initial"}}


class Asked(NamedTuple):
    """What was chosen; a time limit and a device of None are those of `detlab.kernel.replay`."""

    capture: Capture
    conditions: tuple[str, ...]
    trials: int
    isolate: bool
    time_limit_s: float | None
    device: str | None

    def options(self) -> dict[str, Any]:
        """Give the keywords of `detlab.kernel.replay` that are not as it has them anyhow."""
        given: dict[str, Any] = {"trials": self.trials, "conditions": list(self.conditions)}
        if self.isolate:
            given["isolate"] = True
        if self.time_limit_s is not None:
            given["time_limit_s"] = self.time_limit_s
        if self.device is not None:
            given["device"] = self.device
        return given

    def code(self) -> str:
        """Write the line that makes the same replay."""
        said = "".join(f", {name}={value!r}" for name, value in self.options().items())
        return f"report = dl.replay(dl.load_capture({str(self.capture.path)!r}){said})"


class Controls:
    """The controls of a replay and what is chosen in them."""

    def __init__(self, offer: Offer) -> None:
        self.offer = offer
        self.capture = ipywidgets.Dropdown(
            description="Capture", layout={"width": "auto", "max_width": "900px"}
        )
        self.note = ipywidgets.HTML()
        self.conditions = ipywidgets.Box(layout=_WRAPPED)
        self.trials = ipywidgets.BoundedIntText(
            60, min=1, max=_MAX_TRIALS, description="Trials of each", **_narrow("180px")
        )
        self.limit = ipywidgets.BoundedFloatText(
            _LIMIT_S, min=1, max=86_400, description="Limit of each, s", **_narrow("190px")
        )
        self.device = ipywidgets.Dropdown(
            options=[_AS_CAPTURED, "cpu"], description="Device", **_narrow("200px")
        )
        self.isolate = ipywidgets.Checkbox(
            True, description="in new processes", indent=False, layout={"width": "auto"}
        )
        self.where = ipywidgets.HTML()
        self.capture.observe(lambda _: self._offer_conditions(), "value")
        self.isolate.observe(lambda _: self._say_where(), "value")
        self._say_where()
        self.arrange(None)

    def _say_where(self) -> None:
        """Say what it means to make trials in this kernel or in other processes."""
        self.limit.disabled = not self.isolate.value
        self.where.value = _ISOLATED if self.isolate.value else _IN_KERNEL

    @property
    def rows(self) -> list[ipywidgets.Widget]:
        """The controls, one row after another; without a capture only what to do about that."""
        if not self.offer.captures:
            return [self.note]
        made = [self.trials, self.limit, self.device, self.isolate, self.where]
        title = ipywidgets.HTML("<b>Conditions</b>")
        return [self.capture, self.note, title, self.conditions, ipywidgets.Box(made, layout=_WRAPPED)]

    @property
    def all(self) -> list[Any]:
        """Everything that can be changed."""
        return [self.capture, self.trials, self.isolate, self.limit, self.device, *self.conditions.children]

    def arrange(self, place: tuple[int, str] | None) -> None:
        """Put the captures of the selected call (rank and site) first, and take the first of them."""
        rank, site = place or (None, "")
        found = ordered(self.offer.captures, site, rank)
        num_here = sum(capture.site == site for _, capture in found)
        before = self.capture.value
        self.capture.options = [
            (option(label, capture), number) for number, (label, capture) in self._numbered(found)
        ]
        if found:
            self.capture.value = before if before is not None and not num_here else self.capture.options[0][1]
        self.note.value = self._note(place, num_here)
        self._offer_conditions()

    def _numbered(self, found: Sequence[tuple[str, Capture]]) -> list[tuple[int, tuple[str, Capture]]]:
        """Give each capture with its number in the offer, so that two with one name stay two."""
        numbers = {id(capture): number for number, (_, capture) in enumerate(self.offer.captures)}
        return [(numbers[id(each[1])], each) for each in found]

    def _note(self, place: tuple[int, str] | None, num_here: int) -> str:
        num = len(self.offer.captures)
        said = []
        if place is not None and num_here:
            said.append(
                f"{num_here} of {num} captures {'is' if num_here == 1 else 'are'} of the selected site."
            )
        elif place is not None or not num:
            what = "The selected call was not captured." if num else "There is no capture."
            said.append(f"{what} To capture {'it' if place else 'one'}, run it again with")
        text = f"<p>{' '.join(said)}</p>" if said else ""
        if said and not num_here:
            text += f'<pre tabindex="0">{html(how_to_capture(place))}</pre>'
        unread = [*self.offer.problems[:3]]
        unread += (
            [f"{self.offer.num_more:,} more captures were not looked at."] if self.offer.num_more else []
        )
        text += "".join(f"<p>Not offered: {html(problem)}</p>" for problem in unread)
        return block(text) if text else ""

    @property
    def chosen(self) -> Capture | None:
        """The chosen capture."""
        number = self.capture.value
        return None if number is None else self.offer.captures[number][1]

    def _offer_conditions(self) -> None:
        """Offer the conditions that make sense on the device of the capture."""
        capture = self.chosen
        device = capture.device if capture else "cpu"
        self.device.layout.display = "none" if device == "cpu" else ""
        names = offered(device)
        if [each.description for each in self.conditions.children] != names:
            self.conditions.children = [
                ipywidgets.Checkbox(
                    name == BASELINE, description=name, indent=False, layout={"width": "auto"}
                )
                for name in names
            ]

    def asked(self) -> Asked:
        """Give what is chosen.

        Raises
        ------
        InputError
            There is no capture, or no condition is chosen.
        """
        capture = self.chosen
        if capture is None:
            raise InputError("there is no capture to replay.", how_to_capture(None))
        conditions = tuple(each.description for each in self.conditions.children if each.value)
        if not conditions:
            raise InputError("no condition is chosen.", f'choose one or several, such as "{BASELINE}"')
        is_here = self.device.value == _AS_CAPTURED or capture.device == "cpu"
        return Asked(
            capture=capture,
            conditions=conditions,
            trials=self.trials.value,
            isolate=self.isolate.value,
            time_limit_s=self.limit.value if self.isolate.value and self.limit.value != _LIMIT_S else None,
            device=None if is_here else str(self.device.value),
        )
