// Open files: sequential and random reading, writing, logs.
#include "files.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <zonal_log.h>

#include <atomic>
#include <mutex>

namespace zonal {

using namespace ROCKSDB_NAMESPACE;

IOStatus Failed(int error) {
  const std::string text = zkv_last_error();
  switch (error) {
    case ENOENT:
      return IOStatus::PathNotFound(text);
    case ENOSPC: {
      IOStatus status = IOStatus::NoSpace(text);
      // RocksDB goes on by itself when there is room again, as it does on POSIX.
      status.SetRetryable(true);
      return status;
    }
    case EBUSY:
    case EAGAIN:
      return IOStatus::Busy(text);
    case EINVAL:
      return IOStatus::InvalidArgument(text);
    case EOPNOTSUPP:
      return IOStatus::NotSupported(text);
    default:
      return IOStatus::IOError(text);
  }
}

IOStatus Open(zkv_store* store, const std::string& path, uint32_t flags, FileHandle* file) {
  zkv_file* opened = nullptr;
  const int error = zkv_file_open(store, Text(path), flags, &opened);
  if (error != 0) return Failed(error);
  file->reset(opened);
  return IOStatus::OK();
}

namespace {

IOStatus ReadAt(const zkv_file* file, uint64_t offset, size_t n, Slice* result, char* scratch) {
  size_t read = 0;
  const int error = zkv_file_read(file, offset, reinterpret_cast<uint8_t*>(scratch), n, &read);
  *result = Slice(scratch, read);
  return StatusOf(error);
}

IOStatus WriteAt(const zkv_file* file, uint64_t offset, const Slice& data) {
  const zkv_text text = Text(data);
  return StatusOf(zkv_file_write(file, text.data, text.len, offset));
}

// A key for the block cache that no other file of the drive ever gets.
size_t UniqueId(const zkv_file* file, char* id, size_t max) {
  const uint64_t number = zkv_file_id(file);
  if (max < sizeof(number) + 1) return 0;
  id[0] = 'z';
  memcpy(id + 1, &number, sizeof(number));
  return sizeof(number) + 1;
}

class Sequential : public FSSequentialFile {
 public:
  Sequential(FileHandle file, bool direct) : file_(std::move(file)), direct_(direct) {}

  IOStatus Read(size_t n, const IOOptions&, Slice* result, char* scratch, IODebugContext*) override {
    IOStatus status = ReadAt(file_.get(), at_, n, result, scratch);
    if (status.ok()) at_ += result->size();
    return status;
  }
  IOStatus PositionedRead(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                          IODebugContext*) override {
    return ReadAt(file_.get(), offset, n, result, scratch);
  }
  IOStatus Skip(uint64_t n) override {
    at_ += n;
    return IOStatus::OK();
  }
  bool use_direct_io() const override { return direct_; }
  size_t GetRequiredBufferAlignment() const override { return kAlignment; }
  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }

 private:
  FileHandle file_;
  const bool direct_;
  uint64_t at_ = 0;
};

class RandomAccess : public FSRandomAccessFile {
 public:
  RandomAccess(FileHandle file, bool direct) : file_(std::move(file)), direct_(direct) {}

  IOStatus Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    return ReadAt(file_.get(), offset, n, result, scratch);
  }
  size_t GetUniqueId(char* id, size_t max) const override { return UniqueId(file_.get(), id, max); }
  bool use_direct_io() const override { return direct_; }
  size_t GetRequiredBufferAlignment() const override { return kAlignment; }
  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }

 private:
  FileHandle file_;
  const bool direct_;
};

// Whether a path is that of a table, by its name as RocksDB gives it.
bool IsTable(const std::string& path) {
  return path.size() >= 4 && path.compare(path.size() - 4, 4, ".sst") == 0;
}

// A new table gathers here up to so many bytes.
constexpr size_t kGatherMax = 8 << 20;

// What an Append or PositionedAppend has written survives the death of the process when it returns:
// so Flush has nothing to do. Not so of a new table, which RocksDB syncs before it uses it: its
// bytes gather, so that the drive gets it in one write and finds a zone with room for all of it.
class Writable : public FSWritableFile {
 public:
  Writable(FileHandle file, const std::string& path, bool direct, uint64_t size,
           std::shared_ptr<Reserve> reserve)
      : file_(std::move(file)),
        direct_(direct),
        gathers_(size == 0 && IsTable(path)),
        size_(size),
        allowance_(std::move(reserve), path) {}
  ~Writable() override { Place().PermitUncheckedError(); }

  using FSWritableFile::Append;
  using FSWritableFile::PositionedAppend;

  IOStatus Append(const Slice& data, const IOOptions&, IODebugContext*) override {
    return PositionedAppend(data, size_, IOOptions(), nullptr);
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions&,
                            IODebugContext*) override {
    IOStatus status = Reserved(data.size());
    if (status.ok()) status = Gathers(data, offset) ? IOStatus::OK() : Place();
    if (status.ok() && !gathers_) status = WriteAt(file_.get(), offset, data);
    if (!status.ok()) return status;
    size_ = offset + data.size();
    allowance_.Wrote(size_);
    return status;
  }
  IOStatus Truncate(uint64_t size, const IOOptions&, IODebugContext*) override {
    IOStatus status;
    if (gathers_ && size <= gathered_.size()) {
      gathered_.resize(size);
    } else {
      status = Place();
      if (status.ok()) status = StatusOf(zkv_file_set_len(file_.get(), size));
    }
    if (status.ok()) size_ = size;
    return status;
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override {
    IOStatus placed = Place();
    if (!file_) return placed;
    IOStatus closed = StatusOf(zkv_file_close(file_.release()));
    return placed.ok() ? closed : placed;
  }
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override {
    IOStatus status = Place();
    return status.ok() ? StatusOf(zkv_file_sync(file_.get())) : status;
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return Sync(options, debug);
  }
  // A hint for the kernel to begin writing: the drive has what is not in the write buffer already.
  IOStatus RangeSync(uint64_t, uint64_t, const IOOptions&, IODebugContext*) override {
    return IOStatus::OK();
  }
  bool IsSyncThreadSafe() const override { return true; }
  bool use_direct_io() const override { return direct_; }
  size_t GetRequiredBufferAlignment() const override { return kAlignment; }
  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override { return size_; }
  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }
  size_t GetUniqueId(char* id, size_t max) const override { return UniqueId(file_.get(), id, max); }

  // RocksDB says so before it writes a table: a compaction has the low priority, a flush has not.
  void SetIOPriority(Env::IOPriority priority) override {
    io_priority_ = priority;
    if (priority == Env::IO_LOW) allowance_.Limit();
  }

  void SetWriteLifeTimeHint(Env::WriteLifeTimeHint hint) override {
    write_hint_ = hint;
    // RocksDB's scale has "not set" and "none" before "short"; ours has one word for both.
    const uint32_t lifetime = hint > Env::WLTH_NONE ? static_cast<uint32_t>(hint) - 1 : 0;
    // A hint that cannot be kept costs nothing.
    if (lifetime > 0) zkv_file_lifetime(file_.get(), lifetime);
  }

 private:
  // Refuses what would take the space that is kept for flushes.
  IOStatus Reserved(uint64_t size) {
    const int error = allowance_.Check(size_, gathered_.size() + size);
    if (error != Allowance::kKept) return StatusOf(error);
    IOStatus status = IOStatus::NoSpace(Allowance::kKeptText);
    status.SetRetryable(true);
    return status;
  }

  // Keeps bytes that continue what has gathered, if there is room for them.
  bool Gathers(const Slice& data, uint64_t offset) {
    const bool fits = offset == gathered_.size() && offset + data.size() <= kGatherMax;
    if (!gathers_ || !fits) return false;
    gathered_.append(data.data(), data.size());
    return true;
  }
  // Writes what has gathered. From then on nothing gathers.
  IOStatus Place() {
    if (!gathers_) return IOStatus::OK();
    gathers_ = false;
    IOStatus status = gathered_.empty() ? IOStatus::OK() : WriteAt(file_.get(), 0, gathered_);
    std::string().swap(gathered_);
    return status;
  }

  FileHandle file_;
  const bool direct_;
  // A new table's bytes, which the drive does not have yet.
  bool gathers_;
  std::string gathered_;
  std::atomic<uint64_t> size_;
  Allowance allowance_;
};

class RandomRW : public FSRandomRWFile {
 public:
  RandomRW(FileHandle file, bool direct) : file_(std::move(file)), direct_(direct) {}

  IOStatus Write(uint64_t offset, const Slice& data, const IOOptions&, IODebugContext*) override {
    return WriteAt(file_.get(), offset, data);
  }
  IOStatus Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    return ReadAt(file_.get(), offset, n, result, scratch);
  }
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override {
    return StatusOf(zkv_file_sync(file_.get()));
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override {
    return file_ ? StatusOf(zkv_file_close(file_.release())) : IOStatus::OK();
  }
  bool use_direct_io() const override { return direct_; }
  size_t GetRequiredBufferAlignment() const override { return kAlignment; }

 private:
  FileHandle file_;
  const bool direct_;
};

class FileLog : public Logger {
 public:
  explicit FileLog(FileHandle file) : file_(std::move(file)) {}
  ~FileLog() override { Close().PermitUncheckedError(); }

  using Logger::Logv;

  void Logv(const char* format, va_list arguments) override {
    const std::string line = LogLine(format, arguments);
    const zkv_text text = Text(line);
    const std::lock_guard<std::mutex> turn(mutex_);
    if (!file_) return;
    // A log that cannot be written must not stop the database.
    if (zkv_file_append(file_.get(), text.data, text.len) == 0) size_ += text.len;
  }
  size_t GetLogFileSize() const override { return size_; }

 protected:
  Status CloseImpl() override {
    const std::lock_guard<std::mutex> turn(mutex_);
    return file_ ? StatusOf(zkv_file_close(file_.release())) : IOStatus::OK();
  }

 private:
  std::mutex mutex_;
  FileHandle file_;
  std::atomic<size_t> size_{0};
};

}  // namespace

std::unique_ptr<FSSequentialFile> SequentialFile(FileHandle file, bool direct) {
  return std::make_unique<Sequential>(std::move(file), direct);
}

std::unique_ptr<FSRandomAccessFile> RandomAccessFile(FileHandle file, bool direct) {
  return std::make_unique<RandomAccess>(std::move(file), direct);
}

std::unique_ptr<FSWritableFile> WritableFile(FileHandle file, const std::string& path, bool direct,
                                             uint64_t size, std::shared_ptr<Reserve> reserve) {
  return std::make_unique<Writable>(std::move(file), path, direct, size, std::move(reserve));
}

std::unique_ptr<FSRandomRWFile> RandomRWFile(FileHandle file, bool direct) {
  return std::make_unique<RandomRW>(std::move(file), direct);
}

std::shared_ptr<Logger> Log(FileHandle file) { return std::make_shared<FileLog>(std::move(file)); }

}  // namespace zonal
