"""One compared call: everything that can be said about it, and the words for it."""

from __future__ import annotations

from detlab.comparison.call.details import CallDetails, call_details
from detlab.comparison.call.links import Link
from detlab.comparison.call.members import Member, Members
from detlab.comparison.call.peers import Peer, Peers, Programs
from detlab.comparison.call.refs import CallRef
from detlab.comparison.call.sides import SideState
from detlab.comparison.call.tensors import TensorPair, TensorSide

__all__ = [
    "CallDetails",
    "CallRef",
    "Link",
    "Member",
    "Members",
    "Peer",
    "Peers",
    "Programs",
    "SideState",
    "TensorPair",
    "TensorSide",
    "call_details",
]
