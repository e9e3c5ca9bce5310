// What the calls of a map are: the names, phases and order that `detlab/views/encoded_map.py` wrote into a page.

/** Write a number as text for people. */
export const number = (value) => value.toLocaleString("en-US");

/** Everything that the page knows of the calls, as its index has it. */
export class Calls {
  /**
   * @param {object} index what `encode_map` wrote
   * @param {Int32Array} calls numbers of callees, one sequence after the other
   */
  constructor(index, calls) {
    this.index = index;
    this.steps = index.steps;
    const starts = [0];
    for (const size of index.sequences) starts.push(starts[starts.length - 1] + size);
    const sequences = index.sequences.map((size, at) => calls.subarray(starts[at], starts[at] + size));
    /** For each program by step: its parts [phase, microbatch, whether run a has it, calls], and its callees. */
    this.programs = index.programs.map((steps) => {
      const found = new Map();
      for (const [step, layout, sequence] of steps) {
        const parts = index.layouts[layout];
        const width = parts.reduce((sum, part) => sum + part[3], 0);
        found.set(step, { parts, width, callees: sequence < 0 ? null : sequences[sequence] });
      }
      return found;
    });
    this.programOf = summed(index.program_of);
  }

  /** Give what one rank runs in a step, undefined where it runs nothing. */
  of(rank, step) {
    return this.programs[this.programOf[rank]].get(step);
  }

  width(program, steps) {
    return Math.max(0, ...steps.map((step) => program.get(step)?.width ?? 0));
  }

  numColumns(steps) {
    return Math.max(0, ...this.programs.map((program) => this.width(program, steps)));
  }

  /** Give the number of the program with the most calls in one of some steps; the first of equal ones. */
  widest(steps) {
    const widths = this.programs.map((program) => this.width(program, steps));
    return widths.indexOf(Math.max(...widths));
  }

  /** Give the first of the steps in which a program has the most calls. */
  widestStep(program, steps) {
    const widths = steps.map((step) => this.programs[program].get(step)?.width ?? 0);
    return steps[widths.indexOf(Math.max(...widths))];
  }

  /** Say what stands at a column: phase, microbatch, callee, and its number among the calls of that callee. */
  at(rank, step, column) {
    const { parts, callees } = this.of(rank, step);
    let start = 0;
    const part = parts.find((each) => (start += each[3]) > column);
    const callee = callees ? callees[column] : -1;
    return { phase: part[0], microbatch: part[1], inA: part[2] === 1, callee, call: this.callNumber(rank, step, column) };
  }

  /** Count the earlier calls of the same callee in the same phase and microbatch, in run a. */
  callNumber(rank, step, column) {
    const { parts, callees } = this.of(rank, step);
    if (!callees) return -1;
    const ranges = [];
    let start = 0;
    for (const [phase, microbatch, inA, size] of parts) {
      ranges.push({ key: `${phase} ${microbatch} ${inA}`, start, stop: Math.min(start + size, column) });
      start += size;
      if (start > column) break;
    }
    const { key } = ranges[ranges.length - 1];
    const same = ranges.filter((range) => range.key === key);
    return same.reduce((sum, range) => {
      for (let at = range.start; at < range.stop; at += 1) if (callees[at] === callees[column]) sum += 1;
      return sum;
    }, 0);
  }

  scope(callee) {
    return this.index.scopes[this.index.callees[callee][0]];
  }

  /** Write what was called and where in the model. */
  name(callee) {
    const op = this.index.ops[this.index.callees[callee][1]];
    const [scope] = this.scope(callee);
    return scope ? `${op} in ${scope}` : op;
  }

  /** Write the site of a call; empty where the page does not know it. */
  site(rank, step, column) {
    const { phase, microbatch, inA, callee, call } = this.at(rank, step, column);
    if (callee < 0 || !inA) return "";
    const [scope, op, group] = this.index.callees[callee];
    const [first, second, third] = [this.index.scopes[scope][0], this.index.ops[op], group].map(quote);
    const place = `${this.steps[step]}/${microbatch}/${this.index.phases[phase]}`;
    return `${place}/${first}/${second}${third ? `@${third}` : ""}#${call}`;
  }

  /** Find the call of a rank that a site names: {rank, step, column}, or null. */
  find(rank, site) {
    const found = /^(-?\d+)\/(-?\d+)\/(\w+)\/([^/]*)\/([^/@]*)(?:@([^/]*))?#(\d+)$/.exec(site);
    const step = found ? this.steps.indexOf(Number(found[1])) : -1;
    const { parts, callees } = this.of(rank, step) ?? {};
    if (!callees) return null;
    const [scope, op, group] = [found[4], found[5], found[6] ?? ""].map(unquote);
    const wanted = this.index.callees.map(
      ([inScope, ofOp, ofGroup]) => this.index.scopes[inScope][0] === scope && this.index.ops[ofOp] === op && ofGroup === group,
    );
    const phase = this.index.phases.indexOf(found[3]);
    let [start, left] = [0, Number(found[7])];
    for (const [ofPhase, microbatch, inA, size] of parts) {
      const isHere = ofPhase === phase && microbatch === Number(found[2]) && inA;
      for (let at = start; isHere && at < start + size; at += 1) {
        if (wanted[callees[at]]) left -= 1;
        if (left < 0) return { rank, step, column: at };
      }
      start += size;
    }
    return null;
  }

  /**
   * Say when a call was made and what it was, as the notebook does.
   *
   * @param {number[]|null} pooled the calls [first, one past the last] that it is one of, when nobody knows which
   */
  describe(rank, step, column, pooled = null) {
    const { phase, callee } = this.at(rank, step, column);
    const layer = callee < 0 ? -1 : this.scope(callee)[1];
    const parts = [`step ${this.steps[step]}`, this.index.phases[phase].replaceAll("_", " ")];
    if (pooled) return `${parts[0]} · one of the calls ${number(pooled[0])} to ${number(pooled[1] - 1)}`;
    if (layer >= 0) parts.push(`layer ${layer}`);
    parts.push(`call ${number(column)}`);
    if (callee >= 0) parts.push(this.name(callee));
    return parts.join(" · ");
  }

  /** Join the parts of a step wherever the phase stays the same: [[name, start, stop]…]. */
  bands(program, step) {
    const found = [];
    let start = 0;
    for (const [phase, , , size] of this.programs[program].get(step)?.parts ?? []) {
      const name = this.index.phases[phase].replaceAll("_", " ");
      const last = found[found.length - 1];
      if (last && last.phase === phase) last.stop = start + size;
      else found.push({ phase, name, start, stop: start + size });
      start += size;
    }
    return found.map(({ name, start: from, stop }) => [name, from, stop]);
  }

  /** Find the layers of a step: calls outside of any between two of the same one, in one phase, belong to it. */
  layers(program, step) {
    const callees = this.programs[program].get(step)?.callees ?? [];
    const found = [];
    for (const [, start, stop] of this.bands(program, step)) {
      let last = null;
      for (let column = start; column < Math.min(stop, callees.length); column += 1) {
        const [, layer] = this.scope(callees[column]);
        if (layer < 0) continue;
        if (last && last[0] === layer) last[2] = column + 1;
        else found.push((last = [layer, column, column + 1]));
      }
    }
    return found.map(([layer, start, stop]) => [`layer ${layer}`, start, stop]);
  }
}

/** Add up what each number changes in the one before. */
export function summed(steps) {
  let sum = 0;
  return Int32Array.from(steps, (step) => (sum += step));
}

/** Read a name as it stands in a site; what is no such text stays as it is. */
function unquote(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Write a name as it stands in a site. */
function quote(name) {
  return encodeURIComponent(name).replace(/%(?:2[0246ABC]|3[ABCDEF]|5[BCDE]|60|7[BCD])/g, decodeURIComponent);
}
