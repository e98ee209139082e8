#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "driver/driver.h"

namespace braid {

// Why a program could not be opened, or a tick did not complete. The bindings convert it to a NativeFailure.
struct Failure {
  std::string code;    // the driver's name of the status
  std::string op;      // the driver call or phase
  std::string lane;    // by name; "" where no lane is at fault
  std::string device;  // "cuda:1"; "" where none is at fault
  int node = -1;       // index of the plan's node
  int laneId = -1;     // of `lane`
  std::string detail;
  bool noticed = false;  // by a call that is not at fault itself: work issued earlier has failed
  bool memory = false;   // the two figures below mean something
  std::uint64_t wantedBytes = 0, freeBytes = 0;
  std::string holders;  // who holds the memory, in words
};

using MaybeFailure = std::optional<Failure>;

// "cuda:1", "host:0".
inline std::string deviceName(const DeviceInfo& info) {
  return info.kind + ":" + std::to_string(info.ordinal);
}

inline Failure failureOf(Driver& driver, Status status, std::string op) {
  Failure failure;
  failure.code = statusName(status);
  failure.op = std::move(op);
  failure.detail = driver.lastDetail();
  failure.device = deviceName(driver.info());
  return failure;
}

// A program that is invalid at `where`: a field, or a command ("commands[17]").
inline Failure invalidProgram(const std::string& where, const std::string& problem) {
  Failure failure;
  failure.code = statusName(Status::invalidValue);
  failure.op = "program";
  failure.detail = where + ": " + problem;
  return failure;
}

}  // namespace braid
