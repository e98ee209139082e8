// The cases that Braid's graphs are held to, each with the test that stands for it, or the reason why there
// is none. `coverage.test.ts` looks for the tests, and for one of each statement of the contract.

/** The statements of docs/internals/decisions/graphs.md, 94. */
export const statements = 67

/** A test, as the name of its file without `.test.ts`, and its title or the beginning of it. */
export type Where = readonly [file: string, title: string]
export type Case = readonly [words: string, where: Where] | readonly [words: string, why: string]

const definition = (title: string): Where => ['definition', title]
const builder = (title: string): Where => ['builder', title]
const ofCases = (title: string): Where => ['cases', title]
const misuse = (title: string): Where => ['misuse', title]
const statement = (title: string): Where => ['statements', title]
const callbacks = (title: string): Where => ['callbacks', title]
const owners: Where = ['owners', 'are alive exactly while something that may run refers to them']
const native = (title: string): Where => ['native', title]
const memoryNodes = (title: string): Where => ['memory-nodes', title]

const conditionals = definition('conditional nodes: if, if-else, while, switch')
const children = definition('a child is a copy: it keeps its operands, and goes with its node')
const orders = definition('kernels run in the order of the edges, which can be changed')
const sets = definition('edges are sets: what is there is not added again, what is not is not removed')
const updates = definition(
  'updates of a node reach later executables; updates of an executable reach it alone',
)
const kinds = ofCases('updates of each kind reach later executables; one of the wrong kind changes nothing')
const refused = misuse(
  'what is no graph, no condition of this one, or of no use, is refused and adds nothing',
)
const whole = ofCases(
  'an executable takes whole parameters of a node, and none of a node that it does not have',
)
const stands = ofCases('an executable runs what it was made of: nodes destroyed, replaced and updated later')
const once = builder('a graph is captured once; what is not finished cannot be embedded, launched or taken')
const living = ofCases('kernels, their arguments and events live as long as a graph that uses them')
const kept = definition('a block that a node refers to gets no new owner before the last holder goes')
const events = definition('events: a lane waits for a node inside a launch, and a node for a lane')
const bodies = builder('conditional bodies are filled directly, or captured')

const noHandles = 'the driver’s handles are not public: a kernel or a graph is made by Braid alone'

export const lifetimes: readonly Case[] = [
  [
    'branches survive the deletion of their parent',
    ofCases('a body of a conditional node outlives the view'),
  ],
  ['branches can be used after it', ofCases('a body of a conditional node outlives the view of its parent')],
  ['a body that was found by walking nodes survives too', ofCases('a grandchild’s view keeps the whole')],
  ['a destroyed conditional node releases and invalidates', ofCases('a conditional node that is destroyed')],
  ['a child graph survives the deletion of its parent', ofCases('a grandchild’s view keeps the whole')],
  ['nested children keep their ancestors', ofCases('a grandchild’s view keeps the whole; its nodes release')],
  ['a destroyed child stays comparable', native('S38_S44_AChildsOwnersAndViewsGoWithItsNode')],
  ['a second view releases what was added by the first', native('S43_TwoViewsOfAChildAreOne')],
  [
    'owners made before an embedding are released in it, two levels deep',
    ofCases('a grandchild’s view keeps'),
  ],
  ['a destroyed child node releases what is inside, and invalidates it', children],
  ['an updated child node replaces its views', definition('a new child replaces the old one, and what that')],
  ['a child update releases old owners and keeps new ones', owners],
  ['children that were captured release their owners', owners],
  ['event nodes keep their events', living],
  ['events survive instantiation and execution', events],
  ['64 dropped graphs, one wake-up', callbacks('of 64 graphs that are dropped all owners go')],
  ['a full wake-up queue strands nothing', native('S65_ManyDestructionsAskForOneDrainAndNoneIsLost')],
  ['cleanup at the end of the process', native('S66_AtTheEndOfTheProcessNothingIsReleased')],
  ['callbacks survive their function’s variable', callbacks('outlive their definition and executable until')],
  ['copied bytes survive', statement('3, 11 a native function gets a copy of its data; without data')],
  ['a callback survives the deletion of its node', stands],
  ['a launch keeps its owners', definition('a launch that is queued keeps what it uses, though everything')],
  ['the same after a clone', ofCases('a clone runs on its own, and keeps what its original kept')],
  ['owners go with the last of two executables', native('S34_EachExecutableKeepsOwnersAndTheLastReleases')],
  ['a new node does not change the owners of an old executable', stands],
  ['kernels, and their libraries, survive', living],
  ['a kernel from a raw handle', noHandles],
  ['nodes found by walking are the same nodes', orders],
  ['arguments of a kernel live as long as the graph', living],
  ['fills and copies keep blocks that were freed', kept],
  ['clones keep the blocks of copies', ofCases('a clone runs on its own, and keeps what its original kept')],
  ['raw memory with an owner', statement('13 an address keeps nothing; 14 an owner that is named keeps it')],
  ['a block on one side, an owner on the other', statement('16 the rule is for each side by itself')],
  ['owners that are objects go with the graph', statement('17 an owner that is no block is kept itself')],
  ['both owners of a copy stay together in an executable', owners],
  ['freed blocks are refused', statement('18 a freed block is refused, as an operand and as an owner')],
  ['a block with an owner is refused', statement('15 a block has no owner beside it; the error names the')],
]

export const captures: readonly Case[] = [
  ['whether it is building, over its life', builder('copies, fills and launches become nodes; nothing runs')],
  ['three in a row', builder('copies, fills and launches become nodes; nothing runs before the launch')],
  ['fork and join; too few are refused', builder('split and join make a diamond')],
  ['whether a join is needed', builder('split and join make a diamond')],
  ['an ended capture is not resumed; its executable runs again', once],
  ['not instantiated before or during the capture', once],
  ['begun twice; split before it has begun', once],
  ['a closed fork says so', statement('61 the graph of a split is that of the builder that began')],
  ['a closed source of an update is refused', misuse('a closed definition or builder is no source')],
  ['dropped in the middle', builder('a builder that is lost in the middle, by an error for instance')],
  ['embedding what is no graph', once],
  ['callbacks while capturing', statement('57 callbacks are checked alike in definitions and in captures')],
  ['a tail that is not found', native('S54_OwnersStayWithTheGraphWhereTheNodeIsNotFound')],
  ['a child graph runs', builder('a finished graph is embedded as one node')],
  ['closing twice; the lane afterwards', builder('a builder that is dropped in the middle leaves its lane')],
  ['the definition before, during and after', once],
  ['the definition shares ownership', once],
  ['captured and explicit nodes in one graph', builder('a captured graph can be changed as any other')],
  ['a body by capture and by view', bodies],
  ['programmatic launches', native('ACapturedKernelMayStartBeforeTheOneInFrontHasEnded')],
  ['conditional bodies with forks inside', bodies],
]

export const editing: readonly Case[] = [
  ['seven shapes of graphs read back as declared', native('NodesAndEdgesAreReadBack')],
  ['every kind of node says what it is', builder('copies, fills and launches become nodes; nothing runs')],
  ['each shape runs', native('TheEdgesOrderTheNodes')],
  ['a drawing is not empty', definition('dot draws the graph')],
  ['what is no condition, or no definition, is refused', refused],
  ['a null pointer that is freed', memoryNodes('memory is of its own definition alone')],
  ['elements of three bytes', misuse('elements of three bytes are refused by nodes, updates')],
  ['a switch without branches', conditionals],
  ['a condition of another graph', refused],
  ['empty nodes, joins of one', sets],
  ['several executables', builder('copies, fills and launches become nodes; nothing runs before the launch')],
  [
    'an allocation that is not freed',
    memoryNodes('a node uses memory after its allocation and before its free, or there is no'),
  ],
  ['loops of no turn, branches not taken', conditionals],
  ['nodes destroyed and edges rewired prove their order', orders],
  ['the sets of neighbours', sets],
  ['both sides of an edge; assigning all edges', orders],
  ['a destroyed node', orders],
  ['a refused destruction keeps node and owners', native('S45_ARefusedDestructionChangesNothing')],
  ['edges to what is no node, to another graph, to itself', sets],
]

export const updating: readonly Case[] = [
  ['updates of definitions reach later executables, by kind', kinds],
  ['an update of a destroyed node', updates],
  ['a failed update keeps everything', native('S30_ARefusedUpdateChangesNothing')],
  ['the wrong kind of parameters', kinds],
  [
    'descriptors that are not supported',
    'nodes that no definition made have no copies of several dimensions',
  ],
  ['updates in part', kinds],
  ['of captured and copied nodes', ofCases('a captured or copied node takes whole parameters, and says so')],
  ['updates of executables leave the definition', updates],
  ['whole parameters for an executable', whole],
  ['switching nodes off', updates],
  ['destroyed and unsuitable nodes', updates],
  [
    'a view of an executable’s node',
    'an executable has no views of nodes: it is given the definition’s node',
  ],
  [
    'executables accumulate apart, and in order',
    native('S47_S48_S49_UpdatesOfNodesAddOwnersToTheirExecutable'),
  ],
  [
    'a rejected update of an executable takes its owners back',
    native('S47_S48_S49_UpdatesOfNodesAddOwnersToTheirExecutable'),
  ],
  ['an update of the whole replaces, a failed one does not', native('S46_AnUpdateOfTheWholeExchangesOwners')],
  ['a launch defers what was replaced', native('S47_OwnersOfAnUpdateStayUntilTheLastLaunchHasCompleted')],
  [
    'closing during a launch',
    definition('a launch that is queued keeps what it uses, though everything else'),
  ],
  ['a child’s update in an executable', native('S50_S51_AChildsUpdateAndEnablingAttachNothing')],
  ['a topology that differs is named', updates],
  ['a throwing callback', callbacks('what one throws is uncaught, and the graph goes on')],
  ['two devices', misuse('graphs of two devices stay apart: no child, update, operand')],
  ['graph memory resources', memoryNodes('device.graphMemory counts what graphs take from the driver')],
  ['launches from the device', 'a graph is launched by the host alone'],
]

/** Lists of the same origin that are not about graphs. */
export const elsewhere: readonly Case[] = [
  [
    'streams, events, launch configurations',
    'lanes, events and kernels: spec/conformance/allocator, spec/pytorch',
  ],
  ['buffers and memory resources', 'blocks and pools: spec/conformance/allocator'],
  ['the table of driver functions', 'native/test/cuda holds it against a fake library'],
]

export const cases: readonly Case[] = [...lifetimes, ...captures, ...editing, ...updating, ...elsewhere]
