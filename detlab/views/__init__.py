"""Pictures and files of a comparison: the map, the curves over steps, the HTML report.

Nothing here loads plotly before a figure is asked for; the report never does.
"""

from detlab.views.curves import curves, divergence_by_step
from detlab.views.document import report
from detlab.views.heatmap import heatmap

__all__ = ["curves", "divergence_by_step", "heatmap", "report"]
