"""The determinism tax: how much longer a deterministic step takes, where, and what that comes to."""

from detlab.checks.tax.check import check_tax
from detlab.checks.tax.table import TAX_COLUMNS, table_lines

__all__ = ["TAX_COLUMNS", "check_tax", "table_lines"]
