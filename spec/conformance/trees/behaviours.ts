// The 91 behaviours of PyTorch's graph trees, and what plan trees make of each. `kept` and `changed` have a
// test of their number in behaviours.test.ts, layouts.test.ts, values.test.ts, limits.test.ts or
// failures.test.ts; `none` says why there is nothing to test.
export interface Behaviour {
  readonly name: string
  readonly ours: 'kept' | 'changed' | 'none'
  /** What changed, or why there is no test. */
  readonly why?: string
}

const kept = (name: string): Behaviour => ({ name, ours: 'kept' })
const changed = (name: string, why: string): Behaviour => ({ name, ours: 'changed', why })
const none = (name: string, why: string): Behaviour => ({ name, ours: 'none', why })

const heldByNobody = 'a value lives as long as was declared: a handle that goes ends none and frees nothing'
const noHostStep = 'a graph has no step on the host: what comes before it and after it are plans of their own'
const shapesDeclared = 'shapes are declared, with byShape'

export const behaviours: Readonly<Record<number, Behaviour>> = {
  1: changed('simple two sizes', 'two plans in one arena, not two recordings in a pool'),
  2: changed('three phases', 'an executable is made once; there is no first run outside of it'),
  3: kept('another shape key warms up again'),
  4: kept('integer key reuse'),
  5: kept('chain'),
  6: kept('end early'),
  7: changed('branch and checkpoints', 'nothing is ever restored'),
  8: changed(
    'from replay to another branch',
    'what is alive follows from launches: no count falls when a handle goes',
  ),
  9: kept('an output that dies between two launches'),
  10: changed('aliased outputs die', heldByNobody),
  11: kept('two views of one storage'),
  12: changed('a managed input moved', 'put where the contract has it: no new recording'),
  13: changed('alternating static pointers', 'values that change are inputs, and addresses stay'),
  14: changed("a child's static input changes", 'as 13'),
  15: changed("a parent's static input changes", 'the child has one contract, whatever its parent read'),
  16: changed('parameters and buffers are swapped', 'as 13'),
  17: changed(
    'a static change is an error',
    'every input that is wrong is named; a parameter is copied at opening',
  ),
  18: changed('an unstable pointer', 'as 17'),
  19: changed('a static change records again', 'as 13'),
  20: changed(
    'a limit of recordings',
    'of layouts: above variants a value is moved to where a layout has it',
  ),
  21: changed('the limit is reported once', 'by explain(), in one line of the layout; there is no log'),
  22: changed('a limit of moved inputs', 'an input from elsewhere is put in its place, and records nothing'),
  23: kept('below the limit'),
  24: changed('liveness differs', 'lifetimes are declared, so no layout depends on it'),
  25: kept('dead earlier is fine'),
  26: changed('live longer', 'the value ends, and its handle says so'),
  27: kept('the first that fits'),
  28: kept('forward and backward as a chain'),
  29: changed(
    'a consumed input is still referred to',
    'a plan cannot keep one; a handle of the caller has its value, or is refused once its bytes are written',
  ),
  30: kept('a consumed input is returned too'),
  31: changed('a backward that is still to come', 'declared: until(plan, count)'),
  32: changed('one backward clears it', 'it releases one value, the newest'),
  33: changed('a backward that is skipped', 'tree.begin() gives its values up'),
  34: kept('one of two backwards is never called'),
  35: changed('the warning of a path without an end', 'an error before the launch: more than count'),
  36: changed('mark step overrides the pending backward', 'a run begins where the program says so'),
  37: changed('mark step is sticky', 'it is not'),
  38: kept('overwritten after the warm-up'),
  39: kept('overwritten after the recording'),
  40: changed(
    'overwritten by a replay',
    'PyTorch shows the new data silently; here it throws in every state',
  ),
  41: kept('what an overwritten value says'),
  42: none('identity of outputs', 'handles are new with each launch; no identity is promised'),
  43: changed('liveness with cached outputs', heldByNobody),
  44: none('caches are dropped', 'there are none'),
  45: kept('one storage each'),
  46: kept('an alias of a parameter'),
  47: kept('an alias of an output of another plan'),
  48: kept('an output that is an input'),
  49: kept('a static input that is returned'),
  50: kept('constant outputs'),
  51: changed('empty tensors', 'refused by compile: a dimension is a whole number from 1'),
  52: changed('an empty tensor of the host', 'as 51, and as a feed'),
  53: kept('an expanded input'),
  54: kept('an unaligned static input'),
  55: kept('unaligned inputs'),
  56: kept('an input of the caller is not written'),
  57: kept('a buffer is written'),
  58: kept('a managed input is written'),
  59: changed(
    'managed, then external, is written',
    'a kernel that writes an input gets a copy: nothing is skipped',
  ),
  60: changed('the warning about it', 'as 59: nothing is skipped, so there is no warning'),
  61: kept('the first run counts once'),
  62: changed(
    'a constant is written',
    'compile refuses it: a parameter is never written, what changes is a state',
  ),
  63: changed('several devices', 'refused with a reason: a tree has one arena'),
  64: kept('a manager for each device'),
  65: changed('a step on the host', noHostStep),
  66: changed(
    'steps are reordered',
    `${noHostStep}; work that needs no such step is one plan, and one graph`,
  ),
  67: changed('partitions and shapes', `${noHostStep}, each for each shape`),
  68: changed('an unsafe operation', `${noHostStep}: n such steps, n + 1 plans`),
  69: changed(
    'sizes that depend on data',
    'the host reads them, and launches a plan of that shape that was declared',
  ),
  70: kept('random numbers'),
  71: changed(
    'the state of random numbers',
    'a plan cannot set the counter of another: the numbers are an output that is kept until they are needed again',
  ),
  72: changed('a single stream', 'plans have lanes, and the arena belongs to none of them'),
  73: kept('allocations on another stream'),
  74: kept("a caller's own stream"),
  75: kept('threads and pools'),
  76: changed(
    'a workspace',
    'a plan names its workspaces, so none is unplanned and there is no error of that kind',
  ),
  77: kept('the set of live values is exact'),
  78: changed('snapshots of the pool', 'layouts are values that do not change'),
  79: changed('a segment more', 'as 78'),
  80: changed('restore, then free', 'as 78'),
  81: changed(
    'deleters',
    'the table of slots owns every value, and the caller each block that was copied out',
  ),
  82: kept('clean-up'),
  83: kept('shut down, then run'),
  84: changed('several recordings accumulate', 'as 8'),
  85: changed(
    'the warning about shapes',
    `${shapesDeclared}; a value of another shape is an error, every time`,
  ),
  86: changed('a limit of shapes', `${shapesDeclared}; others are refused, and these go on`),
  87: kept('a capture fails'),
  88: kept('an output is fed back'),
  89: kept('a state from inside is fed back and written'),
  90: kept('a frozen dispatch'),
  91: none('gradients and autocast', 'there are no caches of gradients'),
}
