// LevelDB's Env on a drive. All work is done in Rust, behind zonal_kv.h.
#include <dlfcn.h>
#include <errno.h>
#include <leveldb/env.h>
#include <leveldb/slice.h>
#include <leveldb/status.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zonal_kv.h>
#include <zonal_log.h>
#include <zonal_reserve.h>

#include <exception>
#include <memory>
#include <mutex>
#include <vector>

namespace zonal {

using namespace leveldb;

namespace {

zkv_text Text(const Slice& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// The status of an errno: as LevelDB's own Env tells them apart.
Status Failed(const std::string& context, int error) {
  const char* const text = zkv_last_error();
  return error == ENOENT ? Status::NotFound(context, text) : Status::IOError(context, text);
}

Status StatusOf(const std::string& context, int error) {
  return error == 0 ? Status::OK() : Failed(context, error);
}

struct CloseFile {
  void operator()(zkv_file* file) const { zkv_file_close(file); }
};
using FileHandle = std::unique_ptr<zkv_file, CloseFile>;

Status ReadAt(const std::string& path, const zkv_file* file, uint64_t offset, size_t n,
              Slice* result, char* scratch) {
  size_t read = 0;
  const int error = zkv_file_read(file, offset, reinterpret_cast<uint8_t*>(scratch), n, &read);
  *result = Slice(scratch, read);
  return StatusOf(path, error);
}

class Sequential : public SequentialFile {
 public:
  Sequential(std::string path, FileHandle file) : path_(std::move(path)), file_(std::move(file)) {}

  Status Read(size_t n, Slice* result, char* scratch) override {
    Status status = ReadAt(path_, file_.get(), at_, n, result, scratch);
    if (status.ok()) at_ += result->size();
    return status;
  }
  Status Skip(uint64_t n) override {
    at_ += n;
    return Status::OK();
  }

 private:
  const std::string path_;
  FileHandle file_;
  uint64_t at_ = 0;
};

class RandomAccess : public RandomAccessFile {
 public:
  RandomAccess(std::string path, FileHandle file)
      : path_(std::move(path)), file_(std::move(file)) {}

  // LevelDB uses a result outside of `scratch` as long as the file is open, without a copy.
  Status Read(uint64_t offset, size_t n, Slice* result, char* scratch) const override {
    const uint8_t* bytes = nullptr;
    size_t found = 0;
    const int error = zkv_file_lend(file_.get(), offset, n, &bytes, &found);
    if (error != 0) return Failed(path_, error);
    if (bytes == nullptr) return ReadAt(path_, file_.get(), offset, n, result, scratch);
    *result = Slice(reinterpret_cast<const char*>(bytes), found);
    return Status::OK();
  }

 private:
  const std::string path_;
  FileHandle file_;
};

// Appends gather here until Flush, as in LevelDB's own Env: two of them make a record of the log.
// Flushed data survives the death of the process, except that of a table. LevelDB flushes a table
// after each block and syncs it before use: its blocks gather until the sync, so that the file
// system gets the table whole. After an error the file takes nothing more: LevelDB's log would go
// on at another place in its block, where no reader looks for a record.
class Writable : public WritableFile {
 public:
  enum class Kind { kTable, kOther };

  Writable(std::string path, Kind kind, FileHandle file, uint64_t size, Allowance allowance)
      : path_(std::move(path)),
        kind_(kind),
        gather_max_(kind == Kind::kTable ? kTableGatherMax : kGatherMax),
        file_(std::move(file)),
        size_(size),
        allowance_(std::move(allowance)) {
    allowance_.Wrote(size_);
  }
  ~Writable() override { Close(); }

  Status Append(const Slice& data) override {
    if (!failed_.ok()) return failed_;
    if (buffer_.size() + data.size() <= gather_max_) {
      buffer_.append(data.data(), data.size());
      return Status::OK();
    }
    Status status = WriteGathered();
    if (!status.ok() || data.size() > gather_max_) return status.ok() ? Write(data) : status;
    buffer_.assign(data.data(), data.size());
    return Status::OK();
  }
  Status Flush() override { return kind_ == Kind::kTable ? failed_ : WriteGathered(); }
  Status Sync() override {
    Status status = WriteGathered();
    return status.ok() ? StatusOf(path_, zkv_file_sync(file_.get())) : status;
  }
  Status Close() override {
    if (!file_) return Status::OK();
    Status status = WriteGathered();
    allowance_.Close();
    const int error = zkv_file_close(file_.release());
    return status.ok() ? StatusOf(path_, error) : status;
  }

 private:
  static constexpr size_t kGatherMax = 64 << 10;
  static constexpr size_t kTableGatherMax = 8 << 20;

  Status WriteGathered() {
    if (buffer_.empty()) return failed_;
    Status status = Write(buffer_);
    buffer_.clear();
    return status;
  }

  Status Write(const Slice& data) {
    if (!failed_.ok()) return failed_;
    const int refused = allowance_.Check(size_, data.size());
    const zkv_text text = Text(data);
    if (refused == Allowance::kKept) {
      failed_ = Status::IOError(path_, std::string("no space left on device: ") + Allowance::kKeptText);
    } else if (refused != 0) {
      failed_ = Failed(path_, refused);
    } else if (const int error = zkv_file_write(file_.get(), text.data, text.len, size_)) {
      failed_ = Failed(path_, error);
    } else {
      size_ += text.len;
      allowance_.Wrote(size_);
    }
    return failed_;
  }

  const std::string path_;
  const Kind kind_;
  const size_t gather_max_;
  FileHandle file_;
  uint64_t size_;
  Allowance allowance_;
  std::string buffer_;
  Status failed_;
};

class Lock : public FileLock {
 public:
  explicit Lock(FileHandle file) : file_(std::move(file)) {}

 private:
  FileHandle file_;
};

class FileLog : public Logger {
 public:
  explicit FileLog(FileHandle file) : file_(std::move(file)) {}

  void Logv(const char* format, va_list arguments) override {
    const std::string line = LogLine(format, arguments);
    const zkv_text text = Text(line);
    // A log that cannot be written must not stop the database.
    zkv_file_append(file_.get(), text.data, text.len);
  }

 private:
  FileHandle file_;
};

bool EndsWith(const std::string& path, const char* ending) {
  const size_t length = strlen(ending);
  return path.size() >= length && path.compare(path.size() - length, length, ending) == 0;
}

// Threads and time are those of LevelDB's own Env; files are on the drive. A drive that cannot be
// opened fails every operation: Env::Default has no other way to say it.
class ZonalEnv : public EnvWrapper {
 public:
  ZonalEnv(Env* own, const char* uri) : EnvWrapper(own) {
    if (zkv_open(Text(uri), &store_) != 0) {
      error_ = zkv_last_error();
    } else {
      reserve_ = std::make_shared<Reserve>(store_);
    }
  }

  Status NewSequentialFile(const std::string& path, SequentialFile** result) override {
    return With(path, ZKV_READ, [&](FileHandle file) {
      // A log that is read is one from which a store is recovered.
      uint64_t size = 0;
      if (IsLog(path) && zkv_file_size(file.get(), &size) == 0) reserve_->Log(path)->store(size);
      *result = new Sequential(path, std::move(file));
      return Status::OK();
    }, result);
  }
  Status NewRandomAccessFile(const std::string& path, RandomAccessFile** result) override {
    return With(path, ZKV_READ, [&](FileHandle file) {
      *result = new RandomAccess(path, std::move(file));
      return Status::OK();
    }, result);
  }
  Status NewWritableFile(const std::string& path, WritableFile** result) override {
    return OpenWritable(path, ZKV_WRITE | ZKV_CREATE | ZKV_TRUNCATE, result);
  }
  Status NewAppendableFile(const std::string& path, WritableFile** result) override {
    return OpenWritable(path, ZKV_WRITE | ZKV_CREATE, result);
  }

  bool FileExists(const std::string& path) override {
    zkv_stat stat;
    return store_ && zkv_stat_path(store_, Text(path), &stat) == 0;
  }
  Status GetChildren(const std::string& path, std::vector<std::string>* names) override {
    names->clear();
    if (!store_) return NotOpen();
    uint8_t* list = nullptr;
    size_t len = 0;
    const int error = zkv_list(store_, Text(path), &list, &len);
    if (error != 0) return Failed(path, error);
    const auto free = [len](uint8_t* bytes) { zkv_free_list(bytes, len); };
    const std::unique_ptr<uint8_t, decltype(free)> guard(list, free);
    const char* at = reinterpret_cast<char*>(list);
    for (const char* const end = at + len; at < end; at += names->back().size() + 1) {
      names->emplace_back(at);
    }
    return Status::OK();
  }
  Status RemoveFile(const std::string& path) override {
    if (!store_) return NotOpen();
    const int error = zkv_remove(store_, Text(path));
    if (error == 0) reserve_->RemoveLog(path);
    return StatusOf(path, error);
  }
  Status CreateDir(const std::string& path) override {
    return store_ ? StatusOf(path, zkv_create_dir(store_, Text(path))) : NotOpen();
  }
  Status RemoveDir(const std::string& path) override {
    return store_ ? StatusOf(path, zkv_remove_dir(store_, Text(path))) : NotOpen();
  }
  Status GetFileSize(const std::string& path, uint64_t* size) override {
    *size = 0;
    if (!store_) return NotOpen();
    zkv_stat stat;
    const int error = zkv_stat_path(store_, Text(path), &stat);
    if (error == 0) *size = stat.size;
    return StatusOf(path, error);
  }
  Status RenameFile(const std::string& from, const std::string& to) override {
    if (!store_) return NotOpen();
    const int error = zkv_rename(store_, Text(from), Text(to));
    if (error == 0) reserve_->RemoveLog(from);
    return StatusOf(from, error);
  }
  Status LockFile(const std::string& path, FileLock** result) override {
    return With(path, ZKV_READ | ZKV_WRITE | ZKV_CREATE, [&](FileHandle file) {
      const int error = zkv_file_lock(file.get());
      if (error != 0) return Failed("lock " + path, error);
      *result = new Lock(std::move(file));
      return Status::OK();
    }, result);
  }
  Status UnlockFile(FileLock* lock) override {
    delete lock;
    return Status::OK();
  }
  Status NewLogger(const std::string& path, Logger** result) override {
    return With(path, ZKV_WRITE | ZKV_CREATE | ZKV_TRUNCATE, [&](FileHandle file) {
      *result = new FileLog(std::move(file));
      return Status::OK();
    }, result);
  }
  Status GetTestDirectory(std::string* path) override {
    *path = "/leveldbtest-" + std::to_string(geteuid());
    CreateDir(*path);
    return store_ ? Status::OK() : NotOpen();
  }

 private:
  Status NotOpen() const { return Status::IOError("ZONAL_LEVELDB", error_); }

  template <typename Use, typename Result>
  Status With(const std::string& path, uint32_t flags, Use use, Result** result) {
    *result = nullptr;
    if (!store_) return NotOpen();
    zkv_file* opened = nullptr;
    const int error = zkv_file_open(store_, Text(path), flags, &opened);
    return error == 0 ? use(FileHandle(opened)) : Failed(path, error);
  }

  Status OpenWritable(const std::string& path, uint32_t flags, WritableFile** result) {
    return With(path, flags, [&](FileHandle file) {
      // LevelDB gives no hints. A log lives until its memtable is a table, a table longer.
      const uint32_t lifetime = EndsWith(path, ".log") ? 1 : EndsWith(path, ".ldb") ? 2 : 0;
      // A hint that cannot be kept costs nothing.
      if (lifetime > 0) zkv_file_lifetime(file.get(), lifetime);
      uint64_t size = 0;
      const int error = zkv_file_size(file.get(), &size);
      Allowance allowance(reserve_, path);
      // LevelDB does not say whether a table comes from a compaction. A flush has an old log.
      const bool is_table = EndsWith(path, ".ldb");
      if (is_table && !reserve_->HasOldLog(path.substr(0, path.rfind('/') + 1))) allowance.Limit();
      const auto kind = is_table ? Writable::Kind::kTable : Writable::Kind::kOther;
      if (error == 0) *result = new Writable(path, kind, std::move(file), size, std::move(allowance));
      return StatusOf(path, error);
    }, result);
  }

  zkv_store* store_ = nullptr;
  std::shared_ptr<Reserve> reserve_;
  std::string error_;
};

Env* OwnDefault() {
  using Default = Env* (*)();
  const auto found = reinterpret_cast<Default>(dlsym(RTLD_NEXT, "_ZN7leveldb3Env7DefaultEv"));
  return found == nullptr ? nullptr : found();
}

// Closes what is open when the process ends.
struct AtExit {
  ~AtExit() { zkv_close_all(); }
};

const AtExit at_exit;

}  // namespace
}  // namespace zonal

// What Env::Default returns: made once, and never taken away, as LevelDB's own. A variable that is empty
// names no drive, and that fails too: files must not end up on the host because something else was unset.
extern "C" void* zonal_leveldb_default_env() noexcept {
  static leveldb::Env* const env = []() -> leveldb::Env* {
    leveldb::Env* const own = zonal::OwnDefault();
    const char* const uri = getenv("ZONAL_LEVELDB");
    if (own == nullptr || uri == nullptr) return own;
    return new zonal::ZonalEnv(own, uri);
  }();
  return env;
}
