// Every tag of an error has a title: what tsc does not accept here is a tag that messages.ts lacks.
import type { CompileError, MachineFault } from '../../dsl/index.js'
import type { TreeFault } from '../../dsl/internal.js'
import type { PlanFault } from '../../dsl/ir/load.js'
import type { Titled } from '../../dsl/ir/messages.js'
import type {
  AllocatorErrorTag,
  AllocatorFault,
  AllocConfFault,
  DeviceErrorTag,
  RunErrorTag,
  SafetensorsFault,
  SnapshotFault,
  TreeErrorTag,
} from '../../runtime/index.js'

type Fault =
  | AllocatorFault
  | AllocConfFault
  | CompileError
  | MachineFault
  | PlanFault
  | SafetensorsFault
  | SnapshotFault
  | TreeFault

type Tag = Fault['_tag'] | AllocatorErrorTag | DeviceErrorTag | RunErrorTag | TreeErrorTag

export const titled = (tag: Tag): Titled => tag
