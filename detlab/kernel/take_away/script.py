"""Make one call again and again from the same bits and count its different results. Needs only torch.

    python reproduce.py [--trials N] [--threads N] [--deterministic] [--device D]

It exits with 0 when no result differed, with 1 when some did, and with 2 when it proves nothing.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import os
import struct
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

CALL: dict[str, Any] = {}

# The function to call; None: the op of torch that CALL names.
KERNEL: Callable[..., Any] | None = None

HERE = Path(__file__).parent
ENOUGH = 20  # trials that gave one result, to tell a choice between kernels from a race
POISON = {"nan": 0xFF, "max": 0x7F, "zeros": 0x00}  # the byte that fills fresh memory
M_PERTURB, LARGEST_ALIGNMENT, SMALL_BYTES = -6, 4096, 4096


def main() -> int:
    """Check the inputs, make the trials of every condition, print the verdict and what it rests on."""
    options = parse_options()
    use_recorded_environment()
    call = Call(options.device or CALL["device"])
    rows = [make_trials(call, condition) for condition in chosen_conditions(options)]
    verdict = judge(rows)
    print(f"verdict   {verdict}")
    for row in rows:
        print(f"trials    {row.text()}")
    widest = max(rows, key=lambda row: row.distinct)
    for index, watch in enumerate(widest.outputs):
        if len(watch.seen) > 1:
            print(f"output {index}  {watch.text()}")
    print(f"here      torch {torch.__version__}, {call.device}, python {sys.version.split()[0]}")
    print(f"exported  {CALL['exported']}")
    return {"not seen": 0, "invalid": 2}.get(verdict, 1)


class Call:
    """The call, rebuilt from the blobs beside this file and ready to be made any number of times."""

    def __init__(self, device: str) -> None:
        self.device = device
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise SystemExit(f"the call was made on {device}, and there is none; try --device cpu")
        self.function = find_function()
        self.mutated = set(CALL["mutates"])
        self.pristine = [self.load(spec) for spec in CALL["storages"]]
        self.storages = [self.at_its_alignment(index) for index in range(len(self.pristine))]
        self.reset()
        found = [sha256_of(tensor) for _, tensor in self.tensors()]
        if found != CALL["inputs_sha256"]:
            raise SystemExit("the inputs do not hash to what was exported; copy the folder again, whole")

    def reset(self) -> None:
        """Put every byte, every generator and every tensor back as it was before the call."""
        for storage, pristine in zip(self.storages, self.pristine, strict=True):
            if storage.nbytes() != pristine.nbytes():
                storage.resize_(pristine.nbytes())
            storage.copy_(pristine)
        self.arguments = {name: self.build(value) for name, value in CALL["arguments"]}
        for spec in CALL["generators"]:
            device = torch.device(self.place(spec["device"]))
            on_cpu = device.type == "cpu"
            generator = (
                torch.default_generator if on_cpu else torch.cuda.default_generators[device.index or 0]
            )
            generator.set_state(self.state(spec))

    def run(self) -> list[torch.Tensor]:
        """Make the call; give its outputs, then its mutated arguments, each object once."""
        first = CALL["num_positional"]
        names, values = list(self.arguments), list(self.arguments.values())
        named = dict(zip(names[first:], values[first:], strict=True))
        kind, dtype = torch.device(self.device).type, CALL["autocast"]
        autocast = torch.autocast(kind, getattr(torch, dtype) if dtype else None, enabled=bool(dtype))
        with torch.set_grad_enabled(CALL["grad_mode"]), autocast:
            returned = self.function(*values[:first], **named)
        found = [as_tensor(leaf) for leaf in leaves(returned) if leaf is not None]
        found += [tensor for name, tensor in self.tensors() if name in self.mutated]
        return [tensor.detach() for tensor in {id(tensor): tensor for tensor in found}.values()]

    def adopt_silent_writes(self) -> None:
        """Take for outputs the arguments that the last run changed though it should only read them."""
        for (name, tensor), sha256 in zip(self.tensors(), CALL["inputs_sha256"], strict=True):
            if name not in self.mutated and sha256_of(tensor) != sha256:
                print(f"note      the call changes {name} though its schema says that it only reads")
                self.mutated.add(name)

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Give the tensors among the arguments, in order."""
        for name, value in self.arguments.items():
            for leaf in leaves(value):
                if isinstance(leaf, torch.Tensor):
                    yield name, leaf

    def place(self, device: str) -> str:
        """Give the device in place of a recorded one."""
        return self.device if device == CALL["device"] else device

    def load(self, spec: dict[str, Any]) -> torch.UntypedStorage:
        """Read the bytes of a storage and check their hash."""
        raw = bytearray((HERE / spec["file"]).read_bytes())
        if hashlib.sha256(raw).hexdigest() != spec["sha256"]:
            raise SystemExit(f"{spec['file']} is not what was exported; copy the folder again, whole")
        storage: torch.UntypedStorage = torch.UntypedStorage(len(raw))  # type: ignore[no-untyped-call]
        if raw:
            ctypes.memmove(storage.data_ptr(), (ctypes.c_char * len(raw)).from_buffer(raw), len(raw))
        device = self.place(spec["device"])
        if device == "cpu":
            return storage
        there = torch.UntypedStorage(len(raw), device=device)  # type: ignore[no-untyped-call]
        return there.copy_(storage)

    def at_its_alignment(self, index: int) -> torch.UntypedStorage:
        """Allocate a storage at an address as aligned as it was: kernels choose their code by it."""
        spec, pristine = CALL["storages"][index], self.pristine[index]
        size, alignment = pristine.nbytes(), spec["alignment"]
        if not size or spec["resizable"] or pristine.device.type != "cpu":
            copied: torch.UntypedStorage = pristine.clone()  # type: ignore[no-untyped-call]
            return copied
        buffer = (ctypes.c_char * (size + 2 * LARGEST_ALIGNMENT))()
        offset = -ctypes.addressof(buffer) % LARGEST_ALIGNMENT + alignment % LARGEST_ALIGNMENT
        return torch.frombuffer(buffer, dtype=torch.uint8, offset=offset, count=size).untyped_storage()

    def state(self, spec: dict[str, Any]) -> torch.Tensor:
        """Give the state of a generator."""
        return torch.empty(0, dtype=torch.uint8).set_(self.pristine[spec["state"]].cpu())

    def build(self, value: Any) -> Any:
        """Build one argument from its recorded form."""
        if not isinstance(value, dict):
            return value
        ((kind, body),) = value.items()
        makers: dict[str, Callable[[Any], Any]] = {
            "list": lambda items: [self.build(item) for item in items],
            "tuple": lambda items: tuple(self.build(item) for item in items),
            "dict": lambda pairs: {name: self.build(item) for name, item in pairs},
            "tensor": self.tensor,
            "generator": lambda spec: torch.Generator(self.place(spec["device"])).set_state(self.state(spec)),
            "device": lambda name: torch.device(self.place(name)),
        }
        return makers[kind](body) if kind in makers else scalar(kind, body)

    def tensor(self, spec: dict[str, Any]) -> torch.Tensor:
        """Build a view of its storage: dtype, shape, stride, offset, conjugate and negative bit."""
        storage = self.storages[spec["storage"]]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of complex32
            empty = torch.empty(0, dtype=getattr(torch, spec["dtype"]), device=storage.device)
        tensor = empty.set_(storage, spec["offset"], spec["shape"], spec["stride"])
        if spec["conj"]:
            tensor = tensor.conj()
        if spec["neg"]:
            tensor = torch._neg_view(tensor)
        return tensor.detach().requires_grad_() if spec["requires_grad"] and not CALL["is_op"] else tensor


class Watch:
    """One output over the trials: its different results, and where they differ from the first."""

    def __init__(self, first: torch.Tensor) -> None:
        self.seen: set[str] = set()
        self.first = bits(first)
        self.shape = first.shape
        self.differs = torch.zeros(len(self.first), dtype=torch.bool)

    def add(self, result: torch.Tensor) -> str:
        """Hash a result; note where it differs unless one like it was met before."""
        sha256 = sha256_of(result, with_shape=True)
        if sha256 not in self.seen:
            self.seen.add(sha256)
            found = bits(result)
            same_size = found.shape == self.first.shape
            self.differs |= (found != self.first).any(dim=1) if same_size else torch.tensor(True)
        return sha256

    def text(self) -> str:
        """Say how many elements differ, and which is the first."""
        places = self.differs.nonzero().flatten()
        place = [int(i) for i in torch.unravel_index(places[0], self.shape)] if len(places) else []
        return (
            f"{len(self.seen):,} distinct, {len(places):,} of {len(self.differs):,} elements differ, "
            f"the first at {place}"
        )


class Row:
    """The trials under one condition."""

    def __init__(self, condition: dict[str, Any]) -> None:
        self.condition = condition
        self.results: list[tuple[str, ...]] = []
        self.outputs: list[Watch] = []
        self.nans: list[int] = []

    @property
    def distinct(self) -> int:
        """Number of different results; a result is all outputs together."""
        return len(set(self.results))

    @property
    def is_held(self) -> bool:
        """Whether enough trials gave one result."""
        return self.distinct == 1 and len(self.results) >= ENOUGH

    @property
    def design(self) -> tuple[bool, str]:
        """What makes it another algorithm by design, which is no selection."""
        return self.condition["deterministic"], self.memory

    @property
    def memory(self) -> str:
        """What fills fresh memory: a poison, deterministic algorithms, or nothing."""
        is_filled = self.condition["deterministic"] and self.condition["fill_memory"]
        return self.condition["poison"] or ("fill" if is_filled else "")

    def text(self) -> str:
        """Say what was seen, and its bound."""
        trials = len(self.results)
        counted = f"{trials:,} trial{'' if trials == 1 else 's'} in this process ({self.condition['name']})"
        if self.distinct == 1:
            bound = percent(1.0 - 0.05 ** (1.0 / trials))
            return f"no mismatch in {counted}; a rate above {bound} is excluded at 95 %"
        share = percent(Counter(self.results).most_common(1)[0][1] / trials)
        often = "each came once" if self.distinct == trials else f"the most frequent in {share}"
        return f"{self.distinct:,} distinct results of the same inputs in {counted}, {often}"


def make_trials(call: Call, condition: dict[str, Any]) -> Row:
    """Make the trials of one condition."""
    set_flags(condition)
    row = Row(condition)
    call.reset()
    sizes = [output.untyped_storage().nbytes() for output in call.run()]
    call.adopt_silent_writes()
    for _ in range(condition["trials"]):
        call.reset()
        poison(condition["poison"], [size for size in sizes if 0 < size <= SMALL_BYTES])
        outputs = call.run()
        poison(None)
        row.outputs = row.outputs or list(map(Watch, outputs))
        row.results.append(tuple(w.add(output) for w, output in zip(row.outputs, outputs, strict=True)))
        row.nans.append(sum(num_nan(output) for output in outputs))
    return row


def judge(rows: list[Row]) -> str:
    """Name what was seen: race, uninitialised, selection, not seen, or invalid after too few trials."""
    bare = [max(row.nans) for row in rows if not row.memory]
    for row in rows:
        shows_nan = row.memory in ("nan", "fill") and bare and min(row.nans) > max(bare)
        if shows_nan or any(differ_by_memory(row, other) for other in rows):
            return "uninitialised"
    possible = [row for row in rows if not row.condition["poison"]]  # in training
    if any(row.distinct > 1 for row in rows):
        is_race = any(row.distinct > 1 for row in possible) and not CALL["gives_fresh_memory"]
        return "race" if is_race else "uninitialised"
    alike = [(a, b) for a in possible for b in possible if a.design == b.design]
    pairs = [(a, b) for a, b in alike if a.results[0] != b.results[0]]
    if pairs:
        return "selection" if any(a.is_held and b.is_held for a, b in pairs) else "invalid"
    return "not seen"


def differ_by_memory(a: Row, b: Row) -> bool:
    """Say whether what fills fresh memory alone decides which one result a condition gives."""
    ignored = ("name", "trials", "poison", "fill_memory")
    alike = all(a.condition[name] == b.condition[name] for name in a.condition if name not in ignored)
    return alike and a.memory != b.memory and a.is_held and b.is_held and a.results[0] != b.results[0]


def find_function() -> Callable[..., Any]:
    """Give the function to call."""
    if KERNEL is not None:
        return KERNEL
    if not CALL["is_op"]:
        raise SystemExit(f"{CALL['op']} is no op of torch: import it at the marked place of this file")
    namespace, name, overload = CALL["op"].split(".")
    try:
        function: Callable[..., Any] = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    except AttributeError as error:
        raise SystemExit(f"{CALL['op']} is not registered: import its library at the marked place") from error
    if str(function._schema) != CALL["schema"]:  # type: ignore[attr-defined]
        raise SystemExit(f"{CALL['op']} has another schema in torch {torch.__version__}: {CALL['schema']}")
    return function


def chosen_conditions(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Give the exported conditions, or the one that the options ask for."""
    recorded: list[dict[str, Any]] = CALL["conditions"]
    if options.threads is not None or options.deterministic:
        one = {**recorded[0], "poison": None}
        one |= {"threads": options.threads or one["threads"]}
        one |= {"deterministic": True, "warn_only": False} if options.deterministic else {}
        threads = f"{one['threads']} thread{'' if one['threads'] == 1 else 's'}"
        flags = ", use_deterministic_algorithms" if one["deterministic"] else ""
        device = options.device or CALL["device"]
        recorded = [{**one, "name": (threads if device == "cpu" else device) + flags}]
    return [{**condition, "trials": options.trials or condition["trials"]} for condition in recorded]


def set_flags(condition: dict[str, Any]) -> None:
    """Set threads and flags; None leaves one as it is."""
    if condition["deterministic"]:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it torch refuses cuBLAS
    torch.set_num_threads(condition["threads"])
    torch.use_deterministic_algorithms(condition["deterministic"], warn_only=condition["warn_only"])
    torch.utils.deterministic.fill_uninitialized_memory = condition["fill_memory"]  # type: ignore[attr-defined]
    torch.set_float32_matmul_precision(condition["float32_matmul_precision"])
    torch.backends.mkldnn.enabled = condition["mkldnn"]
    torch.backends.cudnn.benchmark = condition["cudnn_benchmark"]
    torch.backends.cudnn.deterministic = condition["cudnn_deterministic"]
    if condition["tf32"] is not None:
        torch.backends.cudnn.allow_tf32 = condition["tf32"]
    if condition["blas"] is not None and torch.cuda.is_available():
        torch.backends.cuda.preferred_blas_library(condition["blas"])


def poison(what: str | None, small: Sequence[int] = ()) -> None:
    """Let glibc fill memory that it hands out with one byte, or no more; other C libraries cannot.

    Small blocks come from a cache that it does not reach: they are filled and given back before.
    """
    option = getattr(ctypes.CDLL(None), "mallopt", None)
    if what is not None:
        blocks = [torch.empty(n, dtype=torch.uint8).fill_(POISON[what]) for n in small for _ in range(8)]
        del blocks
    if option is not None:
        option(M_PERTURB, 0 if what is None else (POISON[what] ^ 0xFF) or 0x100)


def use_recorded_environment() -> None:
    """Start again with the variables that reached the kernel, which libraries read when they are loaded."""
    missing = {name: value for name, value in CALL["env"].items() if name not in os.environ}
    if missing:
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **missing})  # noqa: S606 - this very file


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Give a copy of the bytes of a tensor, one row an element."""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return plain.reshape(-1).view(torch.uint8).reshape(plain.numel(), plain.element_size()).clone()


def sha256_of(tensor: torch.Tensor, *, with_shape: bool = False) -> str:
    """Hash the bytes of a tensor in row-major order."""
    raw = bits(tensor)
    found = hashlib.sha256((ctypes.c_char * raw.numel()).from_address(raw.data_ptr()) if raw.numel() else b"")
    if with_shape:
        found.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    return found.hexdigest()


def scalar(kind: str, body: Any) -> Any:
    """Build a number, a slice, or a name of torch."""
    if kind == "float":
        return (
            struct.unpack("<d", bytes.fromhex(body[4:]))[0]
            if body.startswith("nan:")
            else float.fromhex(body)
        )
    if kind == "complex":
        return complex(*(scalar("float", part) for part in body))
    return slice(*body) if kind == "slice" else getattr(torch, body)


def as_tensor(leaf: Any) -> torch.Tensor:
    """Give a number as a tensor of its own precision."""
    if isinstance(leaf, torch.Tensor):
        return leaf
    return torch.tensor(leaf, dtype={float: torch.float64, complex: torch.complex128}.get(type(leaf)))


def leaves(value: Any) -> Iterator[Any]:
    """Walk lists, tuples and dictionaries in order."""
    if isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from leaves(item)
    else:
        yield value


def num_nan(tensor: torch.Tensor) -> int:
    """Count the NaNs of a float tensor, as far as torch can."""
    try:
        return int(torch.isnan(tensor).sum()) if tensor.is_floating_point() or tensor.is_complex() else 0
    except (RuntimeError, NotImplementedError):
        return 0


def percent(rate: float) -> str:
    """Write a rate as a percentage."""
    return f"{100 * rate:.{1 if rate >= 0.01 else 2}f} %"


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--trials", type=int, metavar="N", help="how often under each condition")
    parser.add_argument("--threads", type=int, metavar="N", help="one condition, with so many CPU threads")
    parser.add_argument(
        "--deterministic", action="store_true", help="one condition, deterministic algorithms"
    )
    parser.add_argument("--device", metavar="D", help="where to run it, when not where it was captured")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
