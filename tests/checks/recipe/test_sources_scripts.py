"""Launch scripts: what is read from the text is what a shell would hand to the program."""

import re
import shlex
import shutil
import string
import subprocess

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detlab.checks.recipe import check_recipe
from detlab.checks.recipe.sources import read_settings
from detlab.checks.recipe.sources.shell.interpret import Script
from detlab.errors import InputError

QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z")) | st.sampled_from(" \n\t'\"\\$`#"),
    max_size=10,
)
NAME = st.text(string.ascii_uppercase, min_size=1, max_size=6).map("NCCL_{}".format)
FLAG = st.text(string.ascii_lowercase, min_size=1, max_size=6).map("--x-{}".format)

BASH = shutil.which("bash")

RECORDER = """#!/bin/sh
printf '%s\\0' "$@" > "$SEEN/arguments"
env -0 > "$SEEN/environment"
"""
"""Stands for torchrun, and writes down what it is given."""


def read(folder, text, name="launch.sh"):
    path = folder / name
    path.write_text(text, "utf-8")
    return read_settings(path)


def variables(found):
    """Give the values of the environment by name."""
    return {
        name.removeprefix("env."): found.values(name) for name in found.by_name if name.startswith("env.")
    }


def arguments(found):
    """Give the values of flags and other words of the program by name."""
    about = ("args.script",)
    return {
        name.removeprefix("args."): found.values(name)
        for name in found.by_name
        if name.startswith("args.") and name not in about
    }


@QUICK
@given(
    st.dictionaries(NAME, TEXT, min_size=1, max_size=4), st.dictionaries(FLAG, TEXT.filter(bool), max_size=4)
)
def test_quoted_words_arrive_as_they_are(tmp_path, environment, flags):
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in environment.items())
    given_flags = " \\\n  ".join(f"{flag}={shlex.quote(value)}" for flag, value in flags.items())
    found = read(tmp_path, f"{exports}\ntorchrun train.py {given_flags}\n")
    assert variables(found) == {name: (value,) for name, value in environment.items()}
    assert len(arguments(found)) == len(flags)
    assert found.problems == ()


SCRIPTS = {
    "arrays": """
ARGS=(--alpha 1 "two words"  # a comment
  --beta='x y')
MORE=()
ARGS+=(--gamma)
torchrun pretrain.py "${ARGS[@]}" "${MORE[@]}" --last
""",
    "strings": """
export NCCL_ALGO="Ring"   # fixed
NCCL_X=1
export NCCL_X NCCL_Y='$HOME is not here'
A="--alpha 1 \\
  --beta 2"
torchrun train.py $A --gamma "$A" --delta a"b"'c'\\ d
""",
    "defaults": """
unset SOMETHING
torchrun train.py --alpha ${SOMETHING:-5} --beta=${SOMETHING-x}y --gamma "${SOMETHING:-a b}" --end
""",
    "heredoc": """
cat > /dev/null <<'END'
export NCCL_ALGO=Tree
torchrun wrong.py
END
export NCCL_ALGO=Ring
torchrun train.py --alpha <<-EOF
	torchrun wrong.py
	EOF
""",
    "prefix": """
NCCL_ALGO=Ring NCCL_X="a b" torchrun train.py --alpha 2>&1 | cat
""",
    "env": """
export NCCL_X=1 NCCL_Y=2
env -u NCCL_X NCCL_ALGO=Ring torchrun train.py --alpha > /dev/null
""",
    "unset": """
export NCCL_ALGO=Tree NCCL_X=1
unset NCCL_ALGO
torchrun train.py; true
""",
    "allexport": """
set -a
NCCL_ALGO=Ring
set +a
NCCL_HIDDEN=1
torchrun train.py
""",
    "functions": """
start() { NCCL_X=2 torchrun train.py --alpha; }
function prepare() {
  export NCCL_ALGO=Ring
}
prepare
start
""",
    "subshell": """
export NCCL_ALGO=Ring
(export NCCL_ALGO=Tree; true)
( export NCCL_X=1; torchrun train.py --alpha )
""",
    "eval": """
CMD="torchrun train.py --alpha 'a b'"
CMD+=" --beta"
eval $CMD
""",
    "inner shell": """
export NCCL_ALGO=Ring
bash -c "NCCL_X=1 torchrun train.py --alpha $NCCL_ALGO"
""",
    "append": """
NCCL_X=a
NCCL_X+=b
export NCCL_X
torchrun train.py ${NCCL_X}${NCCL_X} "$NCCL_X-$NCCL_X"
""",
    "over lines": "torchrun \\\n  train.py \\\n  --alpha \\\n  1\n",
    "windows": "export NCCL_ALGO=Ring\nif true; then\n  torchrun train.py --alpha\nfi\n",
    "escapes": r"""
torchrun train.py --alpha a\"b --beta "\$x \\ \a" --gamma $'t\tq\'' '--delta' #none
""",
}


def ran(folder, text):
    """Let a real shell run a script; give the arguments and the environment that its torchrun got."""
    tool = folder / "torchrun"
    tool.write_text(RECORDER)
    tool.chmod(0o755)
    script = folder / "real.sh"
    script.write_text(text)
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "SEEN": str(folder)}
    subprocess.run([BASH, script], env=environment, check=True, timeout=30, capture_output=True)
    words = (folder / "arguments").read_bytes().decode().split("\0")[:-1]
    pairs = (folder / "environment").read_bytes().decode().split("\0")
    return words, dict(pair.split("=", 1) for pair in pairs if pair)


@pytest.mark.skipif(BASH is None, reason="needs bash, which says what is right")
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_read_as_bash_runs_it(tmp_path, name):
    words, environment = ran(tmp_path, SCRIPTS[name])
    found = read(tmp_path, SCRIPTS[name])
    again = read(tmp_path, "torchrun " + " ".join(map(shlex.quote, words)), "words.sh")
    assert found.values("args.script") == (words[0],)
    assert arguments(found) == arguments(again)
    theirs = {key: (value,) for key, value in environment.items() if key.startswith("NCCL_")}
    assert {key: value for key, value in variables(found).items() if value != (None,)} == theirs
    assert [problem for problem in found.problems if "not exported" not in problem] == []


TYPICAL = """#!/bin/bash
set -euo pipefail
export NCCL_ALGO=Tree
GPUS=8
DISTRIBUTED_ARGS=(--nproc_per_node $GPUS --nnodes ${NNODES:-1})
MODEL_ARGS=(
    --deterministic-mode   # wanted
    --no-gradient-accumulation-fusion
)
if [ "$FP8" = 1 ]; then
    MODEL_ARGS+=(--fp8-format hybrid)
    export NVTE_ALLOW_NONDETERMINISTIC_ALGO=1
else
    export NVTE_ALLOW_NONDETERMINISTIC_ALGO=0
fi
export NCCL_ALGO=Ring
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py "${MODEL_ARGS[@]}" --data-path $DATA
"""


def test_a_typical_launcher_is_read_with_its_lines(tmp_path):
    found = read(tmp_path, TYPICAL)
    assert found.framework == "megatron-lm"
    assert found.values("args.deterministic_mode") == (True,)
    assert found.where("args.deterministic_mode") == "launch.sh: line 7"
    assert found.values("args.gradient_accumulation_fusion") == (False,)
    assert found.values("args.data_path") == ("${DATA}",)
    assert found.values("place.processes_per_node") == (8,)
    assert found.where("place.nodes") == "launch.sh: line 5 (unless NNODES is set before)"
    assert found.problems == ()


def test_the_last_assignment_before_the_launch_counts_and_both_places_are_told(tmp_path):
    found = read(tmp_path, TYPICAL)
    assert found.values("env.NCCL_ALGO") == ("Ring",)
    assert found.where("env.NCCL_ALGO") == "launch.sh: line 16, over line 3"


def test_an_assignment_after_the_launch_counts_for_nothing(tmp_path):
    found = read(tmp_path, "export NCCL_ALGO=Ring\ntorchrun train.py\nexport NCCL_ALGO=Tree\n")
    assert found.values("env.NCCL_ALGO") == ("Ring",)


def test_what_stands_in_a_branch_is_said_with_its_condition(tmp_path):
    found = read(tmp_path, TYPICAL)
    both = {each.value: each.where for each in found.by_name["env.NVTE_ALLOW_NONDETERMINISTIC_ALGO"]}
    assert both == {
        "1": "launch.sh: line 12 (only in the if of line 10)",
        "0": "launch.sh: line 14 (only in the else of line 13)",
    }
    assert found.where("args.fp8") == "launch.sh: line 11 (only in the if of line 10)"


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("for i in 1 2; do export NCCL_ALGO=Ring; done\n", "only in the loop of line 1"),
        ("case $X in\n a|b) export NCCL_ALGO=Ring ;;\nesac\n", "only in the case of line 1"),
        ('[ -z "$X" ] && export NCCL_ALGO=Ring\n', "only if the command before it on line 1 allows"),
        ("f() {\n export NCCL_ALGO=Ring\n}\n", "only in the function f, which the script does not call"),
    ],
)
def test_each_kind_of_condition_is_told(tmp_path, text, condition):
    found = read(tmp_path, text)
    assert found.values("env.NCCL_ALGO") == ("Ring",)
    assert condition in found.where("env.NCCL_ALGO")


def test_a_condition_ends_with_its_branch(tmp_path):
    found = read(tmp_path, "if true; then\n if true; then echo; fi\nfi\nexport NCCL_ALGO=Ring\n")
    assert found.where("env.NCCL_ALGO") == "launch.sh: line 4"


def test_what_a_script_does_not_set_is_unset_here_and_perhaps_inherited(tmp_path):
    found = read(tmp_path, "torchrun pretrain_gpt.py --seed 1\n")
    assert found.unset_here("env.NCCL_ALGO") and not found.says_all_of("env.NCCL_ALGO")
    assert found.says_all_of("args.deterministic_mode")


@pytest.mark.parametrize(
    "line",
    [
        "env -i PATH=$PATH NCCL_ALGO=Ring torchrun train.py",
        "srun --export=NCCL_ALGO=Ring torchrun train.py",
        "srun --export=NCCL_ALGO -N 2 torchrun train.py",
    ],
)
def test_a_clean_start_makes_what_is_missing_unset(tmp_path, line):
    found = read(tmp_path, f"export NCCL_ALGO=Ring NCCL_OTHER=1\n{line}\n")
    assert found.says_all_of("env.NVTE_X")
    assert found.values("env.NCCL_ALGO") == ("Ring",)
    assert found.values("env.NCCL_OTHER") == ()


def test_srun_hands_on_all_and_adds(tmp_path):
    found = read(tmp_path, "export NCCL_X=1\nsrun --export=ALL,NCCL_ALGO=Ring torchrun train.py\n")
    assert variables(found) == {"NCCL_X": ("1",), "NCCL_ALGO": ("Ring",)}
    assert not found.says_all_of("env.NVTE_X")


def test_srun_under_a_batch_job_that_exports_nothing_hands_on_nothing(tmp_path):
    head = "#!/bin/bash\n#SBATCH --export=NONE\nexport NCCL_ALGO=Ring\n"
    (problem,) = read(tmp_path, f"{head}srun torchrun train.py\n").problems
    assert problem.startswith("launch.sh: line 4: under #SBATCH --export=NONE srun hands on nothing")
    found = read(tmp_path, f"{head}srun --export=ALL torchrun train.py\n")
    assert found.problems == () and found.says_all_of("env.NVTE_X")


def test_a_container_gets_only_what_it_is_given(tmp_path):
    line = "docker run --rm -e NCCL_ALGO=Ring --env=NCCL_X=1 -e NCCL_Y --env-file f.env image python train.py"
    found = read(tmp_path, f"export NCCL_Y=2 NCCL_Z=3\n{line} --seed 1\n")
    assert variables(found) == {"NCCL_ALGO": ("Ring",), "NCCL_X": ("1",), "NCCL_Y": ("2",)}
    assert found.problems == ("launch.sh: line 2: the variables in f.env are not read; give that file too",)
    assert arguments(found) == {"seed": (1,)}


def test_mpirun_adds_to_what_it_starts(tmp_path):
    found = read(tmp_path, "mpirun -np 8 -x NCCL_ALGO=Ring -x PATH python3 train.py --seed=1\n")
    assert found.values("env.NCCL_ALGO") == ("Ring",)
    assert arguments(found) == {"seed": (1,)}


@pytest.mark.parametrize(
    "start",
    [
        "torchrun --nproc_per_node 8 -m torchtitan.train",
        "python -m torchtitan.train",
        "python3 -u -X dev -m torchtitan.train",
        "python -m torch.distributed.run --nproc-per-node=8 --module torchtitan.train",
        "srun -N 2 --gpus 8 numactl -l /opt/bin/python3.11 -m torchtitan.train",
        "exec nohup torchrun --standalone -m torchtitan.train",
    ],
)
def test_the_program_is_found_behind_what_starts_it(tmp_path, start):
    found = read(tmp_path, f"{start} --training.seed 3 --debug.deterministic\n")
    assert found.values("args.script") == ("torchtitan.train",)
    assert found.framework == "torchtitan"
    assert arguments(found) == {"seed": (3,), "deterministic_mode": (True,)}


def test_overrides_on_the_command_line_are_fields(tmp_path):
    found = read(tmp_path, "python run.py trainer.deterministic=true ++model.seed=3 --lr -1e-3 ~model.x\n")
    assert found.values("torch.deterministic") == (True,)
    assert found.values("args.seed") == (3,)
    assert found.values("args.lr") == (-0.001,)
    assert found.values("args.model.x") == (None,)


def test_the_program_that_trains_is_chosen_among_several(tmp_path):
    found = read(
        tmp_path,
        "python prepare.py --seed 9\ntorchrun train.py --seed 1\npython after.py --seed 8 --a --b\n",
    )
    assert found.values("args.script") == ("train.py",)
    assert found.problems == ()


def test_a_second_program_that_trains_is_told(tmp_path):
    found = read(tmp_path, "torchrun one.py --seed 9\ntorchrun two.py --seed 1\n")
    assert found.values("args.seed") == (1,)
    assert found.problems == ("launch.sh: line 1: one.py is started here too and not looked at",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('torchrun train.py "$@"\n', "line 1: $@ is handed on, and the script does not say what it is"),
        (
            "torchrun train.py --a=1 ${MORE[@]}\n",
            "line 1: ${MORE} is handed on, and the script does not say what it is",
        ),
        (
            "torchrun train.py $(cat args)\n",
            "line 1: $(cat args) is handed on, and the script does not say what it is",
        ),
        ("torchrun train.py --yaml-cfg a.yaml\n", "line 1: what a.yaml sets is not read; give that file too"),
        ("source env.sh\ntorchrun train.py\n", "line 1: what env.sh sets is not read; give that file too"),
        (
            "NCCL_ALGO=Ring\ntorchrun train.py\n",
            "line 1: NCCL_ALGO is assigned and not exported: the program does not get it",
        ),
        ("torchrun train.py\nA='x\n", "line 2: the quote that begins here does not end"),
        ("torchrun train.py\ncat <<EOF\n", "line 3: the here-document that begins here does not end"),
    ],
)
def test_what_cannot_be_known_is_said(tmp_path, text, problem):
    assert read(tmp_path, text).problems == (f"launch.sh: {problem}",)


@pytest.mark.parametrize("word", ["$X", "${X%.txt}", "$(date)", "`date`", "$((1 + 2))", "${X:+y}", "${!X}"])
def test_what_is_not_known_stays_as_it_is_written(tmp_path, word):
    found = read(tmp_path, f"export NCCL_A={word}\n")
    assert found.values("env.NCCL_A") == ("${X}" if word == "$X" else word,)


def test_a_script_that_only_exports_is_read_too(tmp_path):
    found = read(tmp_path, "export NCCL_ALGO=Ring\nexport NCCL_X\n")
    assert variables(found) == {"NCCL_ALGO": ("Ring",), "NCCL_X": ("${NCCL_X}",)}


def test_a_job_in_a_here_document_is_read(tmp_path):
    job = "#!/bin/bash\nexport NCCL_ALGO=$ALGO\nsrun torchrun train.py --seed \\$SEED\n"
    text = f"ALGO=Ring\nsbatch <<EOF\n{job}EOF\n"
    found = read(tmp_path, text)
    assert found.values("env.NCCL_ALGO") == ("Ring",)
    assert found.values("args.seed") == ("${SEED}",)
    assert found.where("args.seed") == "launch.sh: line 5"


def test_nothing_is_run(tmp_path):
    seen = tmp_path / "seen"
    read(
        tmp_path,
        f"touch {seen}\nA=$(touch {seen})\nexport B=`touch {seen}`\npython x.py `touch {seen}`\n",
    )
    assert not seen.exists()


@pytest.mark.parametrize(
    "text",
    [
        "A=a\n" + "A=$A$A\n" * 200 + "export NCCL_X=$A\n",
        "f() { f; f; }\nf\nexport NCCL_X=1\n",
        "export NCCL_X=1\n" + "eval " * 500 + "x\n",
        "export NCCL_X=" + "${X:-" * 200 + "}" * 200 + "\n",
        "export NCCL_X=" + "$(" * 200 + ")" * 200 + "\n",
        "export NCCL_X=1\n" + "( " * 2000,
    ],
)
def test_a_script_that_was_made_to_flood_ends(tmp_path, text):
    found = read(tmp_path, text)
    assert found.by_name or found.problems


@pytest.mark.parametrize("text", ["true\n" * 30_000, f"A='{'x ' * 1000}'\n" + "B=($A $A $A $A)\n" * 60])
def test_a_script_longer_than_any_launcher_is_refused(tmp_path, text):
    with pytest.raises(InputError, match="larger than any launch script"):
        read(tmp_path, text)


BRANCHES = """
if [ $SIZE = small ]; then
  OVERLAP="--tp-comm-overlap --overlap-grad-reduce"
  LAYERS=2
elif [ $SIZE = large ]; then
  OVERLAP="--overlap-grad-reduce"
  LAYERS=8
fi
OPTIONS="  \\
  --num-layers ${LAYERS} \\
  --seed 1"
run_cmd="torchrun pretrain_gpt.py
 ${OPTIONS} ${OVERLAP}"
echo ${run_cmd}
eval ${run_cmd}
"""


def test_no_branch_hides_another(tmp_path):
    found = read(tmp_path, BRANCHES)
    assert {each.value: each.where for each in found.by_name["args.num_layers"]} == {
        2: "launch.sh: line 15 (only in the if of line 2)",
        8: "launch.sh: line 15 (only in the elif of line 5)",
    }
    assert found.values("args.tp_comm_overlap") == (True,)
    assert len(found.by_name["args.seed"]) == 1
    assert found.problems == ()


def test_what_is_added_under_a_condition_may_be_missing(tmp_path):
    text = 'A="--seed 1"\nif true; then\n  A+=" --tp-comm-overlap"\nfi\ntorchrun train.py $A\n'
    found = read(tmp_path, text)
    assert {each.where for each in found.by_name["args.tp_comm_overlap"]} == {
        "launch.sh: line 1 (only in the if of line 2)"
    }
    assert "launch.sh: line 1" in {each.where for each in found.by_name["args.seed"]}


def test_more_branches_than_are_looked_at_are_told(tmp_path):
    text = "".join(f"[ $X = {n} ] && A=--seed={n}\n" for n in range(40)) + "torchrun train.py $A\n"
    found = read(tmp_path, text)
    assert len(found.values("args.seed")) == 32
    assert found.problems[-1] == "launch.sh: line 40: more branches meet here than are looked at"


SLURM = """#!/bin/bash
#SBATCH --nodes=48
export LAUNCHER="python -u -m torch.distributed.run \\
    --nproc_per_node 8 \\
    --rdzv_endpoint $(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1):6000 \\
    "
export CMD=" \\
    `pwd`/pretrain_gpt.py \\
    --pp-partition-method 'type:transformer|embedding' \\
    --seed 42 \\
    "
export NCCL_ALGO=Ring
clear; srun --wait=60 --jobid $SLURM_JOB_ID bash -c "$LAUNCHER --node_rank \\$SLURM_PROCID $CMD" | tee log
"""


def test_a_program_inside_of_a_shell_inside_of_srun_is_found(tmp_path):
    found = read(tmp_path, SLURM)
    assert found.values("args.script") == ("`pwd`/pretrain_gpt.py",)
    assert found.values("args.seed") == (42,)
    assert found.values("args.pp_partition_method") == ("type:transformer|embedding",)
    assert found.values("place.processes_per_node") == (8,)
    assert found.values("env.NCCL_ALGO") == ("Ring",)
    assert found.problems == ()


ASSIGNED = """V='a b'
E=
W=x\\ y"z"
A=(one 'two three' "$V")
B=()
A+=(last $V)
V+=c
"""

PIECES = r"""
'q|$V'  "d|$V"  $V  ${V}  $E  ${E:-def}  ${E-def}  ${U:-d|e}  "${U:-d|e}"  ${V:+alt}  ${E:+alt}  ${U-}
\$  \|  \"  '\'  "\\"  "\$V"  "a'b"  'a"b'  $'t\tn'  ""  ''  ${W}  "$W"  =  %  plain  --x=
${A[@]}  "${A[@]}"  "${A[*]}"  ${A[1]}  $A  "${B[@]}"  ${B[@]}
""".split()
"""Pieces of words; ``|`` stands for a blank."""

WORD = (
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=4)
    .map(lambda pieces: "".join(pieces).replace("|", " "))
    .filter(lambda word: re.search(r"\$[A-Z]\w", word) is None)  # the name of a variable that is not there
)


@pytest.mark.skipif(BASH is None, reason="needs bash, which says what is right")
@settings(QUICK, max_examples=60)
@given(st.lists(WORD, min_size=1, max_size=4), st.booleans())
def test_any_words_expand_as_bash_expands_them(tmp_path, words, is_array):
    line = f'Z=({" ".join(words)})\npython x "${{Z[@]}}"\n' if is_array else f"python x {' '.join(words)}\n"
    tell = 'python() { shift; printf \'%s\\0\' "$#" "$@"; }\n'
    done = subprocess.run([BASH, "-c", tell + ASSIGNED + line], capture_output=True, check=True, timeout=30)
    _, *expected = done.stdout.decode().split("\0")[:-1]
    script = Script()
    script.run(ASSIGNED + line)
    (started,) = script.started
    assert [field.text for field in started.launch.arguments] == expected


SAFE = "export NCCL_ALGO=Ring NVTE_ALLOW_NONDETERMINISTIC_ALGO=0 CUBLAS_WORKSPACE_CONFIG=:4096:8\n"


def judged(tmp_path, text, code):
    """Give the verdict over a script, and what one rule says of it."""
    (tmp_path / "job.sh").write_text(SAFE + text, "utf-8")
    result = check_recipe(tmp_path / "job.sh")
    rows = {row["code"]: row for row in result.table.iter_rows(named=True)}
    return result.verdict, rows[code]["state"], rows[code]["says"]


def test_a_switch_that_a_branch_adds_is_not_known_to_be_on(tmp_path):
    text = (
        "A=(--seed 1)\nif [ $D = 1 ]; then A+=(--deterministic-mode); fi\ntorchrun pretrain_gpt.py ${A[@]}\n"
    )
    assert judged(tmp_path, text, "DET001") == (
        "invalid",
        "not checked",
        "deterministic_mode is true only in the if of line 3; what it is otherwise is not known",
    )


@pytest.mark.parametrize(
    "line",
    [
        "if [ $SLURM_NODEID = 0 ]; then export NVTE_X=0 NCCL_ALGO=Ring; fi",
        '[ -z "$NCCL_ALGO" ] && export NCCL_ALGO=Ring',
        "[[ -z $NCCL_ALGO ]] && export NCCL_ALGO=Ring",
        "true || export NCCL_ALGO=Ring",
        "export NCCL_ALGO=${NCCL_ALGO:-Ring}",
    ],
)
def test_a_variable_that_one_branch_sets_is_not_known_to_hold(tmp_path, line):
    (tmp_path / "job.sh").write_text(f"{line}\ntorchrun pretrain_gpt.py --deterministic-mode\n", "utf-8")
    table = check_recipe(tmp_path / "job.sh").table
    assert table.row(by_predicate=pl.col("code") == "DET002", named=True)["state"] == "not checked"


@pytest.mark.parametrize(
    "text",
    [
        "cd /megatron && export NCCL_ALGO=Ring && RUN",
        "if [ $A ]; then export NCCL_ALGO=Ring; RUN; fi",
        "for seed in 1 2; do export NCCL_ALGO=Ring; RUN; done",
        "if [ $A ]; then export NCCL_ALGO=Ring; else export NCCL_ALGO=CollnetChain; fi; RUN",
        "export NCCL_ALGO=CollnetChain; if [ $A ]; then export NCCL_ALGO=Ring; fi; RUN",
        "if [ $A ]; then export NCCL_ALGO=Ring; bash -c 'RUN'; fi",
    ],
)
def test_a_branch_in_which_the_program_starts_settles_what_it_sets(tmp_path, text):
    run = text.replace("RUN", "torchrun pretrain_gpt.py --deterministic-mode")
    (tmp_path / "job.sh").write_text(run, "utf-8")
    table = check_recipe(tmp_path / "job.sh").table
    assert table.row(by_predicate=pl.col("code") == "DET002", named=True)["state"] == "holds"


@pytest.mark.parametrize("more", ["$EXTRA_ARGS", "$X", "${OPTS}"])
def test_a_variable_behind_a_switch_is_more_arguments(tmp_path, more):
    text = f"torchrun pretrain_gpt.py --deterministic-mode {more}\n"
    assert judged(tmp_path, text, "DET001")[:2] == ("invalid", "holds")
    assert judged(tmp_path, text, "DET007")[1] == "not checked"


def test_the_last_argument_counts(tmp_path):
    found = read(
        tmp_path, "A='--seed 1 --tp-comm-overlap'\ntorchrun train.py $A --seed 2 --no-tp-comm-overlap\n"
    )
    assert (found.values("args.seed"), found.values("args.tp_comm_overlap")) == ((2,), (False,))
    assert found.where("args.seed") == "launch.sh: line 2, over line 1"


@pytest.mark.parametrize(
    ("folder", "more"),
    [
        ("/lustre/$SLURM_JOB_ID", ""),
        ("/lustre/${SLURM_ARRAY_TASK_ID}", ""),
        ("/tmp/triton_$USER", "--nnodes 4"),  # noqa: S108 - the place that the rule speaks of
    ],
)
def test_a_cache_of_a_job_or_a_node_is_not_shared(tmp_path, folder, more):
    text = f"export TRITON_CACHE_AUTOTUNING=1 TRITON_CACHE_DIR={folder}\n"
    text += f"torchrun {more} pretrain_gpt.py --deterministic-mode\n"
    assert judged(tmp_path, text, "DET052")[:2] == ("fail", "broken")


def test_a_problem_names_its_file_once(tmp_path):
    (tmp_path / "job.sh").write_text(
        "source env.sh\ntorchrun pretrain_gpt.py --deterministic-mode\n", "utf-8"
    )
    assert "problem: job.sh: line 1: what env.sh" in repr(check_recipe(tmp_path / "job.sh"))
