"""Maps at full resolution: every cell, and whatever a map asks about them."""

from detlab.views.cells.lookup import Called
from detlab.views.cells.source import MapSource

__all__ = ["Called", "MapSource"]
