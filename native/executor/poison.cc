#include "executor/poison.h"

namespace braid {

std::vector<FirstTouch> firstTouches(const Program& program) {
  const ProgramSpec& spec = program.spec();
  std::vector<FirstTouch> found;
  std::vector<bool> touched(spec.buffers.size());
  // Whether some bytes of a part of an output have been accessed by another name: as the whole, or as a part.
  const auto overlapsTouched = [&](std::uint32_t part) {
    const BufferSpec& own = spec.buffers[part];
    for (const std::uint32_t view : program.views()[own.root]) {
      const BufferSpec& other = spec.buffers[view];
      if (touched[view] && other.rootOffset < own.rootOffset + own.bytes &&
          own.rootOffset < other.rootOffset + other.bytes)
        return true;
    }
    return false;
  };
  for (const Step& step : program.steps()) {
    if (step.kind != StepKind::run) continue;
    for (std::uint32_t i = 0; i < step.reads + step.writes; ++i) {
      const std::uint32_t operand = program.decoded().operands[step.operands + i];
      const std::uint32_t root = spec.buffers[operand].root;
      const BufferSpec& buffer = spec.buffers[root];
      const bool inArena = spec.planned && buffer.life == Life::tick;
      if (buffer.space != Space::device || !(inArena || buffer.life == Life::output)) continue;
      // Lanes write the parts of an output side by side.
      const std::uint32_t touch = inArena ? root : operand;
      if (touched[touch]) continue;
      const bool isFirst = inArena || !overlapsTouched(touch);
      touched[touch] = true;
      if (!isFirst) continue;
      // Only whole words are filled: a part of an output may begin between two, or be shorter than one.
      if (spec.buffers[touch].bytes < sizeof(garbage) ||
          spec.buffers[touch].rootOffset % sizeof(garbage) != 0)
        continue;
      // A lane of another device may have no access to this memory.
      if (buffer.device == program.deviceOf(step.lane)) found.push_back({step.command, touch});
    }
  }
  return found;
}

}  // namespace braid
