"""A saved call: capture.json and one raw blob per storage, exact to the bit and without pickle."""

from detlab.captures.call import Capture
from detlab.captures.load import find_capture, load_capture, read_capture
from detlab.captures.save import PendingCapture, save_capture

__all__ = ["Capture", "PendingCapture", "find_capture", "load_capture", "read_capture", "save_capture"]
