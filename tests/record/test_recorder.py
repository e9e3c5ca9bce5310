"""The recorder as a context manager: what it selects, what it touches, and that it leaves no trace behind."""

import json
import os

import pytest
import torch
from torch import nn
from torch._C._distributed_c10d import ProcessGroup, Work
from torch.utils._python_dispatch import _get_current_dispatch_mode

from detlab.captures import load_capture
from detlab.errors import RecordingError
from detlab.record import Recorder
from detlab.store import open_rank, read_manifest, read_metric_logs
from tests.record.traces import named, only, read_events, record


def model_and_optimizer():
    model = nn.Sequential(nn.Linear(2, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def step(model, optimizer):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def touched(model, optimizer):
    """Give everything a recorder may have replaced."""
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    methods = [getattr(ProcessGroup, name) for name in dir(ProcessGroup) if not name.startswith("__")]
    return hooks, vars(optimizer).get("step"), Work.wait, methods, _get_current_dispatch_mode()


def test_everything_is_put_back(tmp_path):
    model, optimizer = model_and_optimizer()
    before = touched(model, optimizer)
    with Recorder(tmp_path / "run") as rec:
        rec.attach(model, optimizer)
        assert touched(model, optimizer) != before
        step(model, optimizer)
    assert touched(model, optimizer) == before


def test_an_exception_puts_everything_back_and_keeps_what_was_recorded(tmp_path):
    model, optimizer = model_and_optimizer()
    before = touched(model, optimizer)
    with pytest.raises(ZeroDivisionError), Recorder(tmp_path / "run") as rec:
        rec.attach(model, optimizer)
        step(model, optimizer)
        _ = 1 / 0
    assert touched(model, optimizer) == before
    trace = open_rank(tmp_path / "run", 0)
    assert trace.complete
    assert trace.num_events


def test_a_step_method_that_was_there_before_is_put_back(tmp_path):
    model, optimizer = model_and_optimizer()
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
    before = vars(optimizer)["step"]
    with Recorder(tmp_path / "run") as rec:
        rec.attach(model, optimizer)
        step(model, optimizer)
        scheduler.step()  # would warn if it missed the call
    assert vars(optimizer)["step"] is before


@pytest.mark.parametrize(
    ("given", "finding"),
    [
        (lambda model, optimizer: (3,), "int 3 as the model"),
        (lambda model, optimizer: ("model",), "str 'model' as the model"),
        (lambda model, optimizer: (optimizer, model), "SGD as the model"),
        (lambda model, optimizer: ([model, 3],), "int 3 as model chunk 1"),
        (lambda model, optimizer: (model, 3), "int 3 as the optimizer"),
        (lambda model, optimizer: (model, [optimizer]), "list as the optimizer"),
    ],
)
def test_attaching_anything_else_says_what_was_given_and_what_is_accepted(tmp_path, given, finding):
    model, optimizer = model_and_optimizer()
    before = touched(model, optimizer)
    with (
        pytest.raises(
            RecordingError, match=f"{finding}(.|\n)*a module or a list of model chunks, and an opt"
        ),
        Recorder(tmp_path / "run") as rec,
    ):
        rec.attach(*given(model, optimizer))
    assert touched(model, optimizer) == before


@pytest.mark.parametrize("as_chunks", [lambda m: m, lambda m: [m], lambda m: (m, m), lambda m: iter([m])])
def test_a_module_and_several_chunks_are_attached(tmp_path, as_chunks):
    model, optimizer = model_and_optimizer()
    with Recorder(tmp_path / "run") as rec:
        rec.attach(as_chunks(model), optimizer)
        step(model, optimizer)
    assert open_rank(tmp_path / "run", 0).num_events


@pytest.mark.parametrize("place", ["file", "file/run"])
def test_a_folder_that_cannot_be_written_is_one_error_with_place_finding_and_hint(tmp_path, place):
    model, optimizer = model_and_optimizer()
    before = touched(model, optimizer)
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(RecordingError) as caught, Recorder(tmp_path / place) as rec:
        rec.attach(model, optimizer)
    assert caught.value.finding.startswith(f"{tmp_path / place} cannot be written into: ")
    assert caught.value.hint
    assert isinstance(caught.value.__context__, OSError)  # leaving the block has not told it once more
    assert touched(model, optimizer) == before


def test_a_run_that_is_there_already_is_told_once(tmp_path):
    for _ in range(2):
        model, optimizer = model_and_optimizer()
        try:
            with Recorder(tmp_path / "run") as rec:
                rec.attach(model, optimizer)
        except RecordingError as error:
            assert "was recorded there before" in error.finding
            assert error.__context__ is None
            return
    pytest.fail("the second run wrote over the first")


def test_only_selected_steps_are_recorded():
    model, optimizer = model_and_optimizer()

    def work(rec):
        rec.attach(model, optimizer)
        for _ in range(6):
            step(model, optimizer)

    events = record(work, steps="2-3,5")
    assert sorted({event.site.step for event in events}) == [2, 3, 5]
    assert len(named(events, "aten.addmm.default")) == 3
    assert {event.site.microbatch for event in named(events, "aten.addmm.default")} == {0}


def test_a_step_that_is_not_selected_runs_without_a_mode(tmp_path):
    with Recorder(tmp_path / "run", steps="2") as rec:
        assert _get_current_dispatch_mode() is None
        rec.step(2)
        assert _get_current_dispatch_mode() is not None
        rec.step(3)
        assert _get_current_dispatch_mode() is None


def test_a_resumed_run_counts_on():
    model, optimizer = model_and_optimizer()

    def work(rec):
        rec.attach(model, optimizer)
        step(model, optimizer)

    assert {event.site.step for event in record(work, start_step=101)} == {101}


def test_a_rank_that_is_not_selected_does_nothing(tmp_path):
    model, optimizer = model_and_optimizer()
    before = touched(model, optimizer)
    with Recorder(tmp_path / "run", ranks="1-3") as rec:
        rec.attach(model, optimizer)
        rec.metric("loss", 1.0)
        rec.microbatch(0)
        with rec.phase("data"):
            rec.step(2)
        assert touched(model, optimizer) == before
    assert not (tmp_path / "run").exists()


def test_the_rank_of_the_launcher_counts_before_torch_distributed_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    with Recorder(tmp_path, ranks=[3]):
        torch.ones(1)
    assert read_manifest(tmp_path).world_size == 8
    assert open_rank(tmp_path, 3).header.coordinate.dp == 3


def test_two_recorders_at_once_are_refused(tmp_path):
    with Recorder(tmp_path / "a"):
        with pytest.raises(RecordingError, match="Another recorder is open"), Recorder(tmp_path / "b"):
            pass
        torch.ones(1)
    assert len(read_events(tmp_path / "a")) == 1
    with Recorder(tmp_path / "b"):
        pass


def test_a_trace_is_never_overwritten(tmp_path):
    with Recorder(tmp_path):
        pass
    model, optimizer = model_and_optimizer()
    with pytest.raises(RecordingError, match="Hint: record into a new folder"), Recorder(tmp_path) as rec:
        rec.attach(model, optimizer)
    assert _get_current_dispatch_mode() is None
    with Recorder(tmp_path.parent / "other"):  # the refused one is closed
        pass


@pytest.mark.parametrize("text", ["", "1-", "3-1", "a", "1,,2", "-1"])
def test_a_selection_that_is_none_is_refused(text):
    with pytest.raises(RecordingError, match="does not select steps"):
        Recorder("run", steps=text)


def test_an_unknown_phase_is_refused(tmp_path):
    with (
        Recorder(tmp_path) as rec,
        pytest.raises(RecordingError, match="'lunch' is no phase"),
        rec.phase("lunch"),
    ):
        pass


def test_an_empty_recording_is_a_whole_trace(tmp_path):
    with Recorder(tmp_path):
        pass
    trace = open_rank(tmp_path, 0)
    assert (trace.complete, trace.num_events, trace.problems) == (True, 0, ())


def test_a_metric_after_the_optimizer_belongs_to_the_step_that_ended(tmp_path):
    model, optimizer = model_and_optimizer()
    with Recorder(tmp_path, steps="1") as rec:
        rec.attach(model, optimizer)
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
            rec.metric("before", 0.1)
            optimizer.step()
            rec.metric("after", 0.2)
        rec.metric("late", 0.3, step=7)
    rows, problems = read_metric_logs(tmp_path)
    assert sorted((name, number, value) for number, _, name, value in rows) == [
        ("after", 1, 0.2),
        ("after", 2, 0.2),
        ("before", 1, 0.1),
        ("before", 2, 0.1),
        ("late", 7, 0.3),
    ]
    assert not problems


def test_the_header_tells_the_recipe(tmp_path, monkeypatch):
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.setenv("HOME_ADDRESS", "unsaid")
    with Recorder(tmp_path, arguments={"lr": 0.1, "ratio": float("nan"), "dtype": torch.float32}) as rec:
        rec.attach(*model_and_optimizer())
    recipe = open_rank(tmp_path, 0).header.recipe
    assert recipe["arguments"] == {"lr": 0.1, "ratio": "nan", "dtype": "torch.float32"}
    assert recipe["env"]["NCCL_ALGO"] == "Ring"
    assert "HOME_ADDRESS" not in recipe["env"]
    assert recipe["state"]["threads"] == torch.get_num_threads()
    json.dumps(recipe, allow_nan=False)


def test_the_manifest_tells_the_choices(tmp_path):
    with Recorder(tmp_path / "monday", steps="1-2", stats=True):
        pass
    manifest = read_manifest(tmp_path / "monday")
    assert (manifest.label, manifest.world_size, manifest.layout) == ("monday", 1, {"dp": 1})
    assert manifest.recorder["steps"] == "1-2"
    assert manifest.recorder["stats"] is True


def test_a_forked_child_leaves_the_trace_to_its_parent(tmp_path):
    with Recorder(tmp_path) as rec:
        torch.ones(1)
        child = os.fork()
        if not child:
            torch.zeros(1)
            rec.step(2)
            rec.__exit__(None, None, None)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        torch.full((1,), 2.0)
    assert [event.op for event in read_events(tmp_path)] == ["aten.ones.default", "aten.full.default"]
    assert open_rank(tmp_path, 0).complete


def test_recording_changes_no_bit_of_the_training(tmp_path):
    def train(rec):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 1))
        optimizer = torch.optim.Adam(model.parameters())
        if rec:
            rec.attach(model, optimizer)
        for _ in range(3):
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
        return [parameter.detach().view(torch.int32).tolist() for parameter in model.parameters()]

    with Recorder(tmp_path, stats=True) as rec:
        recorded = train(rec)
    assert recorded == train(None)


def test_a_captured_call_is_saved_before_it_runs(tmp_path):
    x = torch.ones(3)
    with Recorder(tmp_path, capture="aten.mul_.Tensor"):
        x.mul_(2)
        x.mul_(2)
    events = named(read_events(tmp_path), "aten.mul_.Tensor")
    (folder,) = (tmp_path / "captures").iterdir()  # one per selector
    capture = load_capture(folder)
    assert capture.site == str(events[0].site)
    assert capture.in_digest == events[0].in_digest
    assert (
        list(capture.output_digests) == events[0].details["digest"][events[0].details["side"] == 1].tolist()
    )


def test_a_call_is_chosen_by_its_site_and_up_to_a_limit(tmp_path):
    def work(rec):
        for _ in range(4):
            torch.ones(2).neg()

    site = str(named(record(work), "aten.neg.default")[2].site)
    with Recorder(tmp_path, capture=[site, "aten.ones.default"], capture_limit=2) as rec:
        work(rec)
    captures = [load_capture(folder) for folder in (tmp_path / "captures").iterdir()]
    assert sorted(capture.op for capture in captures) == [
        "aten.neg.default",
        "aten.ones.default",
        "aten.ones.default",
    ]
    assert [capture.site for capture in captures if "neg" in capture.op] == [site]


def test_a_call_that_cannot_be_captured_is_told_and_goes_on(tmp_path):
    with Recorder(tmp_path, capture="aten.add.Tensor"), pytest.warns(RuntimeWarning, match="not captured"):
        torch.ones(2, device="meta") + 1
    assert only(read_events(tmp_path), "aten.add.Tensor").num_out == 1


def test_a_compiled_function_still_runs_compiled(tmp_path):
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph.forward

    function = torch.compile(nn.Sequential(nn.Linear(2, 2)), backend=backend)
    with Recorder(tmp_path) as rec:
        rec.attach(function)
        for _ in range(2):
            function(torch.ones(1, 2)).sum().backward()
        assert len(compiled) == 1
    function(torch.ones(1, 2))
    assert len(compiled) == 2  # without the hooks it is compiled once more, not left to run eagerly
    events = read_events(tmp_path)
    assert [event.site.microbatch for event in named(events, "aten.addmm.default")] == [0, 1]
    assert {"0.weight", "0.bias"} <= {event.scope for event in events}


@pytest.mark.parametrize(
    ("told", "known"),
    [
        ({"DETLAB_RACK": "r7", "LOCAL_RANK": "3"}, {"rack": "r7", "local_rank": 3}),
        ({"DETLAB_RACK": "", "LOCAL_RANK": "first"}, {}),
        ({}, {}),
    ],
)
def test_the_header_tells_rack_and_local_rank_where_the_launcher_does(tmp_path, monkeypatch, told, known):
    for name in ("DETLAB_RACK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DETLAB_HOST", "n1")
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    with Recorder(tmp_path / "run"):
        pass
    recipe = open_rank(tmp_path / "run", 0).header.recipe
    assert {name: recipe[name] for name in ("host", "rack", "local_rank") if name in recipe} == {
        "host": "n1", **known
    }  # fmt: skip
