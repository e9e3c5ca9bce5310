"""Launch scripts: what a shell script exports and with what arguments it starts training. Runs nothing.

What such a script does not unset is inherited from whoever starts it: a variable that it lacks is *unset
here*, and unset in the run only where the program starts from a clean environment (``env -i``, ``srun
--export=NONE``, ``#SBATCH --export=NONE``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from detlab.checks.recipe.settings import Setting, Settings, Value
from detlab.checks.recipe.sources import names
from detlab.checks.recipe.sources.found import Found
from detlab.checks.recipe.sources.overrides import OVERRIDE, say_override
from detlab.checks.recipe.sources.reading import decoded
from detlab.checks.recipe.sources.run import FIRST_PREFIXES
from detlab.checks.recipe.sources.shell.expand import Field, Variable
from detlab.checks.recipe.sources.shell.interpret import SUCCEEDS, Script, Started
from detlab.checks.recipe.sources.shell.words import UnfinishedError
from detlab.checks.recipe.sources.values import literal
from detlab.errors import InputError

SUFFIXES: Final = (".sh", ".bash", ".slurm", ".sbatch", ".job", ".sub")
_SHEBANG: Final = re.compile(rb"#!\s*\S*(?:/env\s+(?:-\S+\s+)*)?(?:/|\b)(?:ba|da|z|k)?sh\b")
_COMMAND: Final = re.compile(
    r"(?m)^[ \t]*(?:(?:export|declare|typeset)\s+[-\w]|(?:[A-Za-z_]\w*=\S*[ \t]+)*"
    r"(?:torchrun|srun|mpirun|python3?|deepspeed|accelerate|ft_launcher|docker|bash|env)\s)"
)
_SBATCH: Final = re.compile(r"(?m)^#SBATCH\s+--export[= ](\S+)")
_FLAG: Final = re.compile(r"--?[A-Za-z_][\w.-]*")
_ARGUMENTS: Final = re.compile(r"(?i)args|arguments|opts|options|flags|extra|overrides|params")
"""What stands in the name of a variable that holds arguments."""
_CONFIGS: Final = re.compile(r"(?:.*[._])?(?:yaml_cfg|config_file|config|cfg|deepspeed_config|config_path)")
_FRAMEWORKS: Final = {
    "torchtitan": "torchtitan",
    "bridge": "megatron-bridge",
    "nemo": "nemo",
    "pretrain_": "megatron-lm",
    "megatron": "megatron-lm",
}
_PLACES: Final = {
    "nproc_per_node": "place.processes_per_node",
    "nnodes": "place.nodes",
    "max_restarts": "place.max_restarts",
}


def recognise(path: Path, content: bytes) -> bool:
    """Say whether a file is a shell script, by its first line or a command that launches."""
    return bool(_SHEBANG.match(content)) or bool(_COMMAND.search(decoded(content)))


def read(path: Path, content: bytes) -> Settings:
    """Read the settings of a launch script."""
    found = Found(path.name)
    text = decoded(content, found)
    script = Script()
    try:
        script.run(text)
    except UnfinishedError as error:
        raise InputError(
            f"{path}: line {error.args[0]}: the {error.args[1]} is larger than any launch script.",
            "give the script that starts training, or a dump of the environment that it makes",
        ) from None
    for where, what in script.problems:
        found.miss(where, what)
    found.partly |= {"env", "args"}
    chosen = _chosen(script.started)
    framework = _framework(chosen) if chosen else ""
    if chosen:
        _say_environment(chosen, script, found, text)
        _say_program([each for each in script.started if _is_same(each, chosen)], found, framework)
        found.settings = _decided(found.settings, chosen.conditions)
        _tell_others([each for each in script.started if not _is_same(each, chosen)], found)
    else:
        _say_exports(script, found)
        found.settings = _decided(found.settings, ())
    found.problems = list(dict.fromkeys(found.problems))
    found.settings = list({repr(each): each for each in found.settings}.values())
    return found.finish(path.name, framework)


def _decided(said: Sequence[Setting], held: Sequence[str]) -> list[Setting]:
    """Leave a condition with those settings alone of which nothing is said for where it is not met.

    Parameters
    ----------
    said
        The settings, each with the condition of its line.
    held
        The conditions under which the program starts: they are met.
    """
    conditions: dict[str, set[str]] = {}
    for each in said:
        conditions.setdefault(each.name, set()).add("" if _is_met(each.condition, held) else each.condition)
    return [each._replace(condition="") if _is_settled(conditions[each.name]) else each for each in said]


def _is_met(condition: str, held: Sequence[str]) -> bool:
    return condition in held or condition.endswith(SUCCEEDS)


def _is_settled(conditions: set[str]) -> bool:
    """Say whether one of several conditions is met in any run: none, or a branch and its ``else``."""
    branches = ("only in the if of", "only in the else of")
    return "" in conditions or all(any(each.startswith(part) for each in conditions) for part in branches)


def _is_same(started: Started, chosen: Started) -> bool:
    """Say whether two are one command, whose words may differ with what branches before it assigned."""
    return started.launch.line == chosen.launch.line and started.condition == chosen.condition


def _tell_others(others: Sequence[Started], found: Found) -> None:
    for each in others:
        if each.launch.is_distributed:
            what = f"{each.launch.script} is started here too and not looked at"
            found.miss(f"line {each.launch.line}", what)


def _chosen(started: Sequence[Started]) -> Started | None:
    """Choose the program that trains: one that a launcher starts, with most arguments, the last of them."""
    ranked = [
        (each.launch.is_distributed, len(each.launch.arguments), number)
        for number, each in enumerate(started)
    ]
    return started[max(ranked)[2]] if ranked else None


def _framework(chosen: Started) -> str:
    script = chosen.launch.script.lower()
    known = [name for part, name in _FRAMEWORKS.items() if part in script]
    flags = {each.text for each in chosen.launch.arguments}
    if not known and {"--tensor-model-parallel-size", "--micro-batch-size"} & flags:
        return "megatron-lm"
    return known[0] if known else ""


def _say_exports(script: Script, found: Found) -> None:
    """Say what a script exports that starts no program, such as one that others source."""
    for name in sorted(script.variables.exported):
        _say_variable(name, script.variables.held.get(name, []), found)
    if not script.variables.exported:
        found.miss("", "it starts no Python program and exports nothing")


def _say_program(alternatives: Sequence[Started], found: Found, framework: str) -> None:
    """Say the arguments of the program that trains: all that it may be given, whatever branch was taken."""
    is_whole = True
    said: dict[tuple[str, str], list[tuple[Setting, str]]] = {}
    for each in alternatives:
        own = Found(found.place)
        own.say("args.script", each.launch.script, _at(each.launch.line, each.condition))
        for name, value, where, condition in _launcher_options(each.launch.launcher):
            own.say(name, value, where, condition)
        is_whole &= _say_arguments(each.launch.arguments, own, framework)
        own.settings = _last(own.settings)
        found.problems += own.problems
        for setting in own.settings:
            said.setdefault((setting.name, repr(setting.value)), []).append((setting, each.given))
    for places in said.values():
        for setting, given in places:
            is_always = len(places) >= len(alternatives)
            where = (
                setting.where
                if is_always or not given or "(" in setting.where
                else f"{setting.where} ({given})"
            )
            condition = setting.condition or ("" if is_always else given)
            found.settings.append(setting._replace(where=where, condition=condition))
    if is_whole:
        found.kinds.add("args")


def _last(said: Sequence[Setting]) -> list[Setting]:
    """Leave out what a later argument of the same command replaces, as argparse reads it."""
    replaced: dict[str, str] = {}
    kept: list[Setting] = []
    certain: set[str] = set()
    for each in reversed(said):
        if each.name in certain:
            replaced.setdefault(each.name, each.where.partition(": ")[2])
            continue
        kept.append(each)
        if not each.condition:
            certain.add(each.name)
    return [
        each._replace(where=f"{each.where}, over {replaced[each.name]}")
        if each.name in replaced and not each.condition and replaced[each.name] not in each.where
        else each
        for each in reversed(kept)
    ]


def _say_environment(chosen: Started, script: Script, found: Found, text: str) -> None:
    launch = chosen.launch
    directive = _SBATCH.search(text)
    starts_clean = launch.starts == "clean" or bool(directive and "ALL" not in directive[1].split(","))
    environment = dict(chosen.environment)
    if launch.only is not None:
        environment = {name: held for name, held in environment.items() if name in launch.only}
        environment |= {name: [] for name in sorted(launch.only) if name not in environment}
    for name, value in launch.variables:
        fields = None if value is None else (value,)
        environment[name] = [Variable(fields, launch.line if value is None else value.line)]
    for name, held in environment.items():
        _say_variable(name, held, found)
    if directive and starts_clean and launch.is_srun and not launch.exports:
        found.miss(
            f"line {launch.line}",
            f"under #SBATCH --export={directive[1]} srun hands on nothing that the script exports "
            "(SLURM_EXPORT_ENV); give srun --export=ALL",
        )
    if starts_clean:
        found.kinds.add("env")
    for name, held in script.variables.held.items():
        if (
            name.startswith(FIRST_PREFIXES)
            and name not in script.variables.exported
            and held
            and name not in environment
        ):
            found.miss(
                f"line {held[-1].line}", f"{name} is assigned and not exported: the program does not get it"
            )


def _say_variable(name: str, held: Sequence[Variable], found: Found) -> None:
    """Say one environment variable with the line that sets it and those that it replaces."""
    if not held:
        found.say_variable(name, f"${{{name}}}", "exported, and set elsewhere")
    for each in held:
        over = f", over line {', '.join(map(str, each.over))}" if each.over else ""
        if each.fields is None:
            where = f"{_at(each.line, each.condition)}: unset{over}"
            found.say_variable(name, None, where, each.condition)
            continue
        conditions = [each.condition, *(part.condition for part in each.fields)]
        condition = next((condition for condition in conditions if condition), "")
        text = " ".join(part.text for part in each.fields)
        found.say_variable(name, text, f"{_at(each.line, condition)}{over}", condition)


def _at(line: int, condition: str) -> str:
    return f"line {line} ({condition})" if condition else f"line {line}"


def _launcher_options(words: Sequence[Field]) -> Iterator[tuple[str, Value, str, str]]:
    """Give what the launcher is told of processes and nodes."""
    for number, word in enumerate(words):
        option, equals, value = word.text.partition("=")
        name = _PLACES.get(option.lstrip("-").replace("-", "_"))
        given = word._replace(text=value) if equals else words[number + 1 : number + 2]
        if name and option.startswith("-") and given:
            held = given if isinstance(given, Field) else given[0]
            condition = word.condition or held.condition
            yield name, literal(held.text), _at(word.line, condition), condition


def _say_arguments(words: Sequence[Field], found: Found, framework: str) -> bool:
    """Say the arguments of the program; say whether they are all of them."""
    is_whole = True
    at = 0
    position = 0
    while at < len(words):
        word = words[at]
        where = _at(word.line, word.condition)
        at += 1
        if word.is_open:
            found.miss(where, f"{word.text} is handed on, and the script does not say what it is")
            is_whole = False
        elif _FLAG.match(word.text) and word.text.startswith("-"):
            values, at = _values(word, words, at)
            condition = next((each.condition for each in (word, *values) if each.condition), "")
            where = _at(word.line, condition)
            name, value = _flag(word.text.partition("=")[0], [each.text for each in values], framework)
            found.say(name, value, where, condition)
            if _CONFIGS.fullmatch(name.removeprefix("args.")) and isinstance(value, str):
                found.miss(where, f"what {value} sets is not read; give that file too")
                is_whole = False
        elif OVERRIDE.fullmatch(word.text) or word.text.startswith("~"):
            say_override(word.text, found, framework, where)
        else:
            found.say(f"args.positional.{position}", word.text, where)
            position += 1
    return is_whole


def _values(word: Field, words: Sequence[Field], at: int) -> tuple[list[Field], int]:
    """Give the values of a flag, and where the next flag begins."""
    _, equals, value = word.text.partition("=")
    values = [word._replace(text=value)] if equals else []
    while at < len(words) and not equals:
        text = words[at].text
        is_number = re.fullmatch(r"-\.?[0-9].*", text)
        is_other = (text.startswith("-") and not is_number) or _is_more(word, words[at], values)
        if is_other or text == "$@" or (values and (OVERRIDE.fullmatch(text) or text.startswith("~"))):
            break
        values.append(words[at])
        at += 1
    return values, at


def _is_more(flag: Field, word: Field, values: Sequence[Field]) -> bool:
    """Say whether a variable behind a flag is more arguments, and not the value of the flag."""
    if not word.is_open:
        return False
    is_switch = names.is_switch(flag.text.lstrip("-"))
    return bool(values) or is_switch or bool(_ARGUMENTS.search(word.text))


def _flag(flag: str, values: Sequence[str], framework: str) -> tuple[str, Value]:
    value: Value = True if not values else literal(values[0]) if len(values) == 1 else ",".join(values)
    return names.flag(flag.lstrip("-"), value, framework)
