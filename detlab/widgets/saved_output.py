"""What a notebook saves of a widget: also a result that came after the widget was displayed."""

from __future__ import annotations

import sys
from typing import Any

from detlab.widgets.static_twin import StaticTwin


class SavedOutput(StaticTwin):
    """Base of a widget that puts its static twin into the notebook anew when its result has come."""

    def save_output(self) -> None:
        """Replace what the notebook holds of it; nothing where it was not displayed."""
        ipython = sys.modules.get("IPython")
        if not self._display_id or ipython is None or ipython.get_ipython() is None:
            return
        from IPython.display import update_display

        update: Any = update_display
        update(self._beneath(), raw=True, display_id=self._display_id)
