"""Pictures and files of a comparison: the map, the curves over steps, the HTML report; figures of a replay.

Nothing here loads plotly before a figure is asked for; the report never does.
"""

from detlab.views.curves import curves
from detlab.views.document import report
from detlab.views.heatmap import heatmap
from detlab.views.replay_figures import distinct_results, ulp_histogram
from detlab.views.step_counts import divergence_by_step

__all__ = ["curves", "distinct_results", "divergence_by_step", "heatmap", "report", "ulp_histogram"]
