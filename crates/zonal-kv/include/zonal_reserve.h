// A reserve of space, so that a store that has filled its drive opens again: RocksDB and LevelDB
// first turn their logs into tables, and write a manifest.
#pragma once

#include <zonal_kv.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace zonal {

// The space that a writer may use.
enum class Use { kAll, kNotReserve };

// How much of the reserve is kept.
enum class Kept { kAll, kHalf };

class Reserve {
 public:
  explicit Reserve(zkv_store* store) : store_(store) { zkv_unit(store, &unit_); }

  // The bytes of a log that may have to become tables: its writer keeps them up to date.
  std::shared_ptr<std::atomic<uint64_t>> Log(const std::string& path) {
    const std::lock_guard<std::mutex> turn(mutex_);
    std::shared_ptr<std::atomic<uint64_t>>& log = logs_[path];
    if (!log) log = std::make_shared<std::atomic<uint64_t>>(0);
    return log;
  }
  // Whether a folder has a log that nothing writes any more: its bytes become a table.
  bool HasOldLog(const std::string& folder) const {
    const std::lock_guard<std::mutex> turn(mutex_);
    for (auto log = logs_.lower_bound(folder); log != logs_.end(); ++log) {
      if (log->first.compare(0, folder.size(), folder) != 0) break;
      // A writer holds it too.
      if (log->second.use_count() == 1) return true;
    }
    return false;
  }
  // It is gone, or kept for other reasons.
  void RemoveLog(const std::string& path) {
    const std::lock_guard<std::mutex> turn(mutex_);
    logs_.erase(path);
  }

  // Bytes that are free beyond the reserve, or half of it; an errno if the drive does not say.
  int Free(Kept part, uint64_t* bytes) const {
    uint64_t free = 0;
    const int error = zkv_free_bytes(store_, &free);
    const uint64_t kept = part == Kept::kAll ? Size() : Size() / 2;
    *bytes = free > kept ? free - kept : 0;
    return error;
  }

 private:
  // Manifest, options and other small files.
  static constexpr uint64_t kSmallFiles = 4;
  static constexpr uint64_t kSmallBytes = 1 << 20;

  uint64_t Size() const {
    const std::lock_guard<std::mutex> turn(mutex_);
    uint64_t size = kSmallFiles * unit_ + kSmallBytes;
    // The tables of a log fill their last units in part.
    for (const auto& log : logs_) size += (*log.second / unit_ + 2) * unit_;
    return size;
  }

  zkv_store* const store_;
  // A file takes at least so much.
  uint64_t unit_ = 4096;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<std::atomic<uint64_t>>> logs_;
};

// Whether a path is that of a log from which a store is recovered, by its name as RocksDB gives it.
inline bool IsLog(const std::string& path) {
  const size_t at = path.size() < 4 ? std::string::npos : path.rfind(".log");
  return at == path.size() - 4 && path.find("/archive/") == std::string::npos;
}

// The space that the writer of one file may use.
class Allowance {
 public:
  // Bytes that are written between two looks at how much is free.
  static constexpr uint64_t kStep = 64 << 10;
  // The drive has room, which is kept for flushes.
  static constexpr int kKept = -1;
  static constexpr const char* kKeptText = "what is left of the drive is kept for flushes";

  Allowance(std::shared_ptr<Reserve> reserve, const std::string& path)
      : reserve_(std::move(reserve)),
        log_(IsLog(path) ? path : ""),
        use_(log_.empty() ? Use::kAll : Use::kNotReserve) {}

  void Limit() { use_ = Use::kNotReserve; }

  // Whether `size` bytes may be written behind the first `end` ones: 0, kKept, or an errno.
  int Check(uint64_t end, uint64_t size) {
    if (use_ == Use::kAll) return 0;
    if (size <= unchecked_) {
      unchecked_ -= size;
      return 0;
    }
    uint64_t free = 0;
    // If the first write to a log failed, RocksDB would keep that log after a resume: it takes
    // another one only if there is something to flush.
    const Kept kept = !log_.empty() && end < kStep ? Kept::kHalf : Kept::kAll;
    const int error = reserve_->Free(kept, &free);
    if (error != 0) return error;
    // A log needs its tables too.
    if (free < 2 * (size + kStep)) return kKept;
    unchecked_ = kStep;
    return 0;
  }

  // The file has `end` bytes now.
  void Wrote(uint64_t end) {
    if (log_.empty()) return;
    if (!log_bytes_) log_bytes_ = reserve_->Log(log_);
    log_bytes_->store(end);
  }

  // Nothing writes the file any more.
  void Close() { log_bytes_.reset(); }

 private:
  const std::shared_ptr<Reserve> reserve_;
  // Its path, if it is a log.
  const std::string log_;
  // Its bytes in the reserve, from the first append on.
  std::shared_ptr<std::atomic<uint64_t>> log_bytes_;
  Use use_;
  uint64_t unchecked_ = 0;
};

}  // namespace zonal
