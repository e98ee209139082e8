import { seatIn } from './collective-extents.js'
import type { Plan } from './plan.js'
import type { Runs } from './run-bytes.js'

/** The runs of a plan whose ids are all in range, from its lists. */
export const runsOf = ({ buffers, nodes, commands, communicators }: Plan): Runs => ({
  root: buffers.map(({ alias }, b) => alias ?? b),
  bytes: buffers.map(({ bytes }) => bytes),
  offset: b => (buffers[b]!.alias === undefined ? 0 : (buffers[b]!.aliasOffset ?? 0)),
  isFilled: b => {
    const { life, init } = buffers[b]!
    return life === 'param' || life === 'input' || (life === 'state' && init !== undefined)
  },
  isOutput: b => buffers[b]!.life === 'output',
  node: n => nodes[n]!,
  seat: id => seatIn(communicators?.[id]),
  each: visit => {
    for (let c = 0; c < commands.length; c++) {
      const command = commands[c]!
      if (command[0] === 'run') visit(c, command[1], command[3], command[4])
    }
  },
})
