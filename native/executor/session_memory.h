#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "executor/failure.h"
#include "executor/program_spec.h"
#include "memory/device_memory.h"

namespace braid {

// A pinned block with shared ownership: JavaScript can transfer an ArrayBuffer's memory into another
// ArrayBuffer, which the addon does not see, and the memory must live until that one is collected.
class PinnedBlock {
 public:
  PinnedBlock(std::shared_ptr<DeviceMemory> device, caching::Block* block)
      : device_(std::move(device)), block_(block) {}
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;
  ~PinnedBlock() {
    device_->driver().bind();
    device_->pinned().free(block_);
  }

 private:
  const std::shared_ptr<DeviceMemory> device_;
  caching::Block* const block_;
};

// Where a session's memory comes from, beside its devices.
struct MemorySources {
  caching::MemPool* pool = nullptr;  // of the first device: for its blocks there
  // By root of a parameter: a block that is filled already and that others use too.
  std::map<std::uint32_t, caching::Block*> shared;
};

// The memory of a session: blocks of its devices, taken when it opens and given back when it is released.
//   of each device:  the pool's range, or the arena | its state, in order of id | each parameter | each slot
//                    of an output
//   pinned, of the first device:  the range of pinned tick buffers | each parameter | each slot of an input
//                    or output
// Everything but pooled tick buffers has a fixed address from here on. A memory is numbered as its device;
// the pinned one comes after the last of them.
//
// With several arenas each slot has its own tick buffers: in device memory one arena lies behind the other,
// from the lowest tick buffer on, so that all share the states and parameters below it; pinned ones lie side
// by side.
class SessionMemory {
 public:
  explicit SessionMemory(std::vector<std::shared_ptr<DeviceMemory>> devices)
      : devices_(std::move(devices)), ranges_(devices_.size() + 1) {}
  SessionMemory(const SessionMemory&) = delete;
  SessionMemory& operator=(const SessionMemory&) = delete;
  ~SessionMemory() { release(); }

  // `spec` has passed `decode`.
  MaybeFailure take(const ProgramSpec& spec, const MemorySources& sources);
  // Makes the work of a stream come after the previous uses of the memory that was taken.
  Status orderAfterPreviousUses(Driver& driver, Stream stream);
  // Nothing of the session may still use it; marks on its blocks still hold them back. Idempotent.
  void release();

  // Of a buffer with a fixed address (views too). The slot matters to inputs and outputs, and where slots
  // have arenas of their own to tick buffers.
  DeviceAddress address(const ProgramSpec& spec, std::uint32_t buffer, std::uint32_t slot) const;
  bool isFixed(std::uint32_t root) const { return places_[root].address != 0; }
  // The block of one slot of an output in device memory. It is lent to users, whose lanes' uses of it are
  // handed, with their holds, to whatever fills the slot next.
  caching::Block* slotBlock(std::uint32_t root, std::uint32_t slot) const;
  void takeUses(const ProgramSpec& spec, std::uint32_t root, std::uint32_t slot, std::vector<Mark*>* marks);

  // Of a pinned root with a fixed address.
  std::shared_ptr<const PinnedBlock> pinnedBlock(std::uint32_t root, std::uint32_t slot) const;

  std::size_t count() const { return ranges_.size(); }
  std::size_t pinned() const { return ranges_.size() - 1; }
  std::size_t of(const BufferSpec& buffer) const {
    return buffer.space == Space::device ? buffer.device : pinned();
  }
  DeviceAddress poolBase(std::size_t memory) const { return ranges_[memory].base; }
  std::uint64_t poolBytes(std::size_t memory) const { return ranges_[memory].total - ranges_[memory].fixed; }
  std::uint64_t fixedBytes(std::size_t memory) const { return ranges_[memory].fixed; }
  // Without what is shared with other sessions.
  std::uint64_t totalBytes(std::size_t memory) const {
    return ranges_[memory].total - ranges_[memory].shared;
  }

 private:
  struct Range {
    DeviceAddress base = 0;  // of the pool or the whole arena
    std::uint64_t fixed = 0, total = 0, state = 0, shared = 0;
    std::uint64_t low = 0;  // where in the arena its block begins
    std::uint64_t own = 0;  // bytes from one slot's arena to the next one's
  };
  struct Place {
    DeviceAddress address = 0;  // of the first slot; 0: none yet
    std::uint32_t slots = 0;    // where its slots begin in `slots_`; of inputs and outputs only
    std::uint64_t own = 0;      // of a tick buffer: bytes from one slot's to the next one's
  };
  struct Slot {
    DeviceAddress address = 0;
    caching::Block* block = nullptr;
    std::shared_ptr<const PinnedBlock> pinned;
  };
  MaybeFailure layOut(const ProgramSpec& spec);
  MaybeFailure sizeDevice(const ProgramSpec& spec, std::size_t device);
  void findOwnBytes(const ProgramSpec& spec);
  MaybeFailure takeRoots(const ProgramSpec& spec);
  void trimArena(const ProgramSpec& spec, std::size_t memory);
  MaybeFailure takeRanges(const ProgramSpec& spec);
  MaybeFailure block(std::size_t memory, std::uint64_t bytes, const std::string& purpose,
                     caching::Block** taken);
  MaybeFailure markHome(DeviceMemory& device);
  Failure shortOf(std::size_t memory, const caching::Shortage& shortage, std::uint64_t wanted);
  DeviceMemory& deviceOf(std::size_t memory) { return *devices_[memory == pinned() ? 0 : memory]; }

  const std::vector<std::shared_ptr<DeviceMemory>> devices_;
  MemorySources sources_;
  std::string name_;
  std::vector<Range> ranges_;
  std::vector<Place> places_;  // by root buffer
  std::vector<Slot> slots_;    // of inputs and outputs, and pinned parameters with one slot
  std::vector<std::pair<std::size_t, caching::Block*>> blocks_;  // of devices, to be freed
  std::vector<std::pair<std::size_t, caching::Block*>> shared_;  // of devices, held
  std::vector<std::pair<DeviceMemory*, Mark*>> previous_;        // previous uses of what was taken
  std::vector<std::shared_ptr<const PinnedBlock>> pinnedRange_;
};

}  // namespace braid
