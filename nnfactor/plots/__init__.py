"""Pictures of fitted models and of what was found with them; names as in the package tlviz.

Every function takes a fitted estimator or a result, draws on `ax=` (or `axes=`, where there are several panels), and
returns the Axes; without one it makes a figure. Colours are told apart by colour-blind readers, and what is not data
has the colours of the axes, so that dark styles work. It needs matplotlib, the extra `plot`.
"""

try:
    import matplotlib as _  # noqa: F401
except ImportError as error:
    raise ImportError("nnfactor.plots needs matplotlib; install it with: pip install 'nnfactor[plot]'") from error

from .comparison import component_comparison_plot
from .components import components_plot, images_plot
from .optimisation import optimisation_diagnostic_plot
from .ranks import scree_plot, selection_plot
from .report import write_report
from .residuals import histogram_of_residuals, outlier_plot
from .variation import core_element_plot, percentage_variation_plot

__all__ = [
    "component_comparison_plot",
    "components_plot",
    "core_element_plot",
    "histogram_of_residuals",
    "images_plot",
    "optimisation_diagnostic_plot",
    "outlier_plot",
    "percentage_variation_plot",
    "scree_plot",
    "selection_plot",
    "write_report",
]
