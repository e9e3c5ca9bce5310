"""Pictures and files of a comparison: map, curves, the HTML report; figures of a replay and of the tax.

Nothing here loads plotly before a figure is asked for; the report never does.
"""

from detlab.views.curves import curves
from detlab.views.document import report
from detlab.views.heatmap import heatmap
from detlab.views.replay_figures import distinct_results, ulp_histogram
from detlab.views.step_counts import divergence_by_step
from detlab.views.tax import tax

__all__ = ["curves", "distinct_results", "divergence_by_step", "heatmap", "report", "tax", "ulp_histogram"]
