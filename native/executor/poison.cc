#include "executor/poison.h"

namespace braid {

std::vector<FirstTouch> firstTouches(const Program& program) {
  const ProgramSpec& spec = program.spec();
  std::vector<FirstTouch> found;
  std::vector<bool> touched(spec.buffers.size());
  for (const Step& step : program.steps()) {
    if (step.kind != StepKind::run) continue;
    for (std::uint32_t i = 0; i < step.reads + step.writes; ++i) {
      const std::uint32_t root = spec.buffers[program.decoded().operands[step.operands + i]].root;
      const BufferSpec& buffer = spec.buffers[root];
      if (touched[root] || buffer.life != Life::tick || buffer.space != Space::device) continue;
      touched[root] = true;
      // A lane of another device may have no access to this memory.
      if (buffer.device == program.deviceOf(step.lane)) found.push_back({step.command, root});
    }
  }
  return found;
}

}  // namespace braid
