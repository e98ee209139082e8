#include "executor/sequence.h"

namespace braid {

Sequence::~Sequence() {
  if (entry_ == nullptr) return;
  Driver& driver = device_->driver();
  driver.bind();
  driver.eventDestroy(entry_);
}

std::uint64_t Sequence::take() {
  std::lock_guard lock(mutex_);
  return taken_++;
}

void Sequence::giveBack(std::uint64_t turn) {
  {
    std::lock_guard lock(mutex_);
    if (turn + 1 == taken_) {
      --taken_;
      return;
    }
    ended_ = true;
  }
  moved_.notify_all();
}

bool Sequence::isNext(std::uint64_t turn) {
  std::lock_guard lock(mutex_);
  return ended_ || turn == issued_;
}

Status Sequence::waitForLast(Driver& driver, Stream stream) {
  for (const Event end : ends_)
    if (const Status status = driver.streamWait(stream, end); status != Status::ok) return status;
  return Status::ok;
}

// The first lane waits for everything, and the others for the first. The lock is held during calls of the
// driver, so that no program of whose events this waits is destroyed meanwhile; none of the calls blocks.
MaybeFailure Sequence::enter(Program& program, std::vector<Mark*>& uses) {
  std::lock_guard lock(mutex_);
  const auto release = [&] {
    for (Mark* const use : uses) use->release();
    uses.clear();
  };
  if (ended_) {
    release();
    return cause_ ? cause_ : invalidProgram("sequence", "a launch before this one was dropped");
  }
  const std::vector<LaneId>& lanes = program.busyLanes();
  if (lanes.empty() || (ends_.empty() && uses.empty())) {
    release();
    return std::nullopt;
  }
  Driver& driver = device_->driver();
  const char* call = "streamWait";
  const Stream first = program.streams()[lanes.front()];
  Status status = driver.bind();
  if (status == Status::ok) status = waitForLast(driver, first);
  for (const Mark* const use : uses)
    if (status == Status::ok) status = driver.streamWait(first, use->event);
  release();
  if (status == Status::ok && lanes.size() > 1 && entry_ == nullptr) {
    call = "eventCreate";
    status = driver.eventCreate(&entry_, EventKind::order);
  }
  if (status == Status::ok && lanes.size() > 1) {
    call = "eventRecord";
    status = driver.eventRecord(entry_, first);
  }
  for (std::size_t i = 1; i < lanes.size() && status == Status::ok; ++i) {
    call = "streamWait";
    status = driver.streamWait(program.streams()[lanes[i]], entry_);
  }
  if (status == Status::ok) return std::nullopt;
  return failureOf(driver, status, call);
}

void Sequence::leave(const Program& program, std::uint32_t slot) {
  {
    std::lock_guard lock(mutex_);
    ++issued_;
    if (!program.busyLanes().empty()) {
      last_ = &program;
      ends_.clear();
      for (const LaneId lane : program.busyLanes()) ends_.push_back(program.tickEnd(slot, lane));
    }
  }
  moved_.notify_all();
}

// Part of the launch may run, with no end that a later one could wait for.
void Sequence::leaveFailed(const Failure& cause) {
  {
    std::lock_guard lock(mutex_);
    ++issued_;
    if (!ended_) cause_ = cause;
    ended_ = true;
  }
  moved_.notify_all();
}

void Sequence::forget(const Program& program) {
  std::lock_guard lock(mutex_);
  if (last_ != &program) return;
  last_ = nullptr;
  ends_.clear();
}

void Sequence::end() {
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
  }
  moved_.notify_all();
}

std::uint64_t Sequence::issued() {
  std::lock_guard lock(mutex_);
  return issued_;
}

void Sequence::awaitIssued(std::uint64_t count) {
  std::unique_lock lock(mutex_);
  moved_.wait(lock, [&] { return ended_ || issued_ >= count; });
}

Status Sequence::order(Stream stream) {
  std::lock_guard lock(mutex_);
  Driver& driver = device_->driver();
  const Status status = driver.bind();
  return status == Status::ok ? waitForLast(driver, stream) : status;
}

}  // namespace braid
