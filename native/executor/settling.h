#pragma once

#include <vector>

#include "executor/program.h"

namespace braid {

// Watches the starts of a session's ticks for one from which everything goes on as from an earlier one: where
// blocks lie depends on the order of commands alone, so from there on ticks come round, and nobody needs to
// ask the pools or to keep the order any more.
//
// As from an earlier one is: the same free ranges, and every point (what lanes are after, what ranges wait
// for, what the events that are waited for a tick later brought) as far back from its lane's present one. A
// point that every lane is after is no point: how far back it lies makes no difference.
class Settling {
 public:
  explicit Settling(const Program& program);

  // At the start of each tick in turn, the order and the pools being told of it: after how many ticks all
  // comes round again; 0 while that is not known.
  std::uint64_t period(const Program& program, std::uint64_t tick);
  void forget();

 private:
  static constexpr std::uint64_t patience = 1024;  // ticks after which it is not looked for any more

  std::vector<std::uint32_t> carried_;  // events that are waited for a tick later
  // The state that is compared with: that of the last tick looked at whose number was a power of two, so that
  // it is within a circle sooner or later, however long the way there and the circle are.
  std::vector<Count> kept_, now_;
  std::uint64_t keptAt_ = 0, keptWaits_ = 0, looked_ = 0;
};

}  // namespace braid
