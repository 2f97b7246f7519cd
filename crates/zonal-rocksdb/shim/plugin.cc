// The file system, its registration under zonal://, and an Env for RocksDB's C interface.
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <exception>

#include "files.h"
#include "rocksdb/utilities/object_registry.h"

namespace zonal {

using namespace ROCKSDB_NAMESPACE;

namespace {

class Lock : public FileLock {
 public:
  explicit Lock(FileHandle file) : file_(std::move(file)) {}

 private:
  FileHandle file_;
};

// Names are committed when they are made, moved or removed: a directory has nothing to sync.
class Directory : public FSDirectory {
 public:
  IOStatus Fsync(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
};

class ZonalFileSystem : public FileSystem {
 public:
  static const char* kClassName() { return "zonal"; }

  ZonalFileSystem(zkv_store* store, std::string uri)
      : store_(store), uri_(std::move(uri)), reserve_(std::make_shared<Reserve>(store)) {}
  ~ZonalFileSystem() override { zkv_close(store_); }

  const char* Name() const override { return kClassName(); }
  std::string GetId() const override { return uri_; }

  IOStatus NewSequentialFile(const std::string& path, const FileOptions& options,
                             std::unique_ptr<FSSequentialFile>* file, IODebugContext*) override {
    const bool direct = options.use_direct_reads;
    return With(path, ZKV_READ, direct, [&](FileHandle opened) {
      // A log that is read is one from which a store is recovered.
      uint64_t size = 0;
      if (IsLog(path) && zkv_file_size(opened.get(), &size) == 0) reserve_->Log(path)->store(size);
      *file = SequentialFile(std::move(opened), direct);
      return IOStatus::OK();
    });
  }
  IOStatus NewRandomAccessFile(const std::string& path, const FileOptions& options,
                               std::unique_ptr<FSRandomAccessFile>* file,
                               IODebugContext*) override {
    const bool direct = options.use_direct_reads;
    return With(path, ZKV_READ, direct, [&](FileHandle opened) {
      *file = RandomAccessFile(std::move(opened), direct);
      return IOStatus::OK();
    });
  }
  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<FSWritableFile>* file, IODebugContext*) override {
    return OpenWritable(path, ZKV_WRITE | ZKV_CREATE | ZKV_TRUNCATE, options, file);
  }
  IOStatus ReopenWritableFile(const std::string& path, const FileOptions& options,
                              std::unique_ptr<FSWritableFile>* file, IODebugContext*) override {
    return OpenWritable(path, ZKV_WRITE | ZKV_CREATE, options, file);
  }
  IOStatus ReuseWritableFile(const std::string& path, const std::string& old,
                             const FileOptions& options, std::unique_ptr<FSWritableFile>* file,
                             IODebugContext* debug) override {
    IOStatus status = RenameFile(old, path, options.io_options, debug);
    return status.ok() ? NewWritableFile(path, options, file, debug) : status;
  }
  IOStatus NewRandomRWFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<FSRandomRWFile>* file, IODebugContext*) override {
    uint32_t overwrites = 0;
    const int error = zkv_overwrites(store_, &overwrites);
    if (error != 0) return Failed(error);
    // So RocksDB keeps the number of an ingested table elsewhere.
    if (overwrites == 0) return IOStatus::NotSupported(path, "files on zonefs only grow at their end");
    const bool direct = options.use_direct_writes;
    return With(path, ZKV_READ | ZKV_WRITE, direct, [&](FileHandle opened) {
      *file = RandomRWFile(std::move(opened), direct);
      return IOStatus::OK();
    });
  }
  IOStatus NewDirectory(const std::string& path, const IOOptions&,
                        std::unique_ptr<FSDirectory>* directory, IODebugContext*) override {
    zkv_stat stat;
    IOStatus status = Stat(path, &stat);
    if (!status.ok()) return status;
    if (!stat.is_directory) return IOStatus::IOError(path, "not a directory");
    *directory = std::make_unique<Directory>();
    return IOStatus::OK();
  }

  IOStatus FileExists(const std::string& path, const IOOptions&, IODebugContext*) override {
    zkv_stat stat;
    IOStatus status = Stat(path, &stat);
    return status.IsPathNotFound() ? IOStatus::NotFound(path) : status;
  }
  IOStatus GetChildren(const std::string& path, const IOOptions&, std::vector<std::string>* names,
                       IODebugContext*) override {
    uint8_t* list = nullptr;
    size_t len = 0;
    const int error = zkv_list(store_, Text(path), &list, &len);
    if (error == ENOENT) return IOStatus::NotFound(path, zkv_last_error());
    if (error != 0) return Failed(error);
    const auto free = [len](uint8_t* bytes) { zkv_free_list(bytes, len); };
    const std::unique_ptr<uint8_t, decltype(free)> guard(list, free);
    names->clear();
    const char* at = reinterpret_cast<char*>(list);
    for (const char* const end = at + len; at < end; at += names->back().size() + 1) {
      names->emplace_back(at);
    }
    return IOStatus::OK();
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions&, IODebugContext*) override {
    const int error = zkv_remove(store_, Text(path));
    if (error == 0) reserve_->RemoveLog(path);
    return StatusOf(error);
  }
  IOStatus Truncate(const std::string& path, size_t size, const IOOptions&,
                    IODebugContext*) override {
    return With(path, ZKV_WRITE, false, [&](FileHandle opened) {
      return StatusOf(zkv_file_set_len(opened.get(), size));
    });
  }
  IOStatus CreateDir(const std::string& path, const IOOptions&, IODebugContext*) override {
    return StatusOf(zkv_create_dir(store_, Text(path)));
  }
  IOStatus CreateDirIfMissing(const std::string& path, const IOOptions&, IODebugContext*) override {
    const int error = zkv_create_dir(store_, Text(path));
    if (error != EEXIST) return StatusOf(error);
    zkv_stat stat;
    IOStatus status = Stat(path, &stat);
    if (!status.ok() || stat.is_directory) return status;
    return IOStatus::IOError(path, "exists and is not a directory");
  }
  IOStatus DeleteDir(const std::string& path, const IOOptions&, IODebugContext*) override {
    return StatusOf(zkv_remove_dir(store_, Text(path)));
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions&,
                      IODebugContext*) override {
    const int error = zkv_rename(store_, Text(from), Text(to));
    if (error == 0) reserve_->RemoveLog(from);
    return StatusOf(error);
  }
  IOStatus LinkFile(const std::string& original, const std::string& link, const IOOptions&,
                    IODebugContext*) override {
    return StatusOf(zkv_link(store_, Text(original), Text(link)));
  }

  IOStatus GetFileSize(const std::string& path, const IOOptions&, uint64_t* size,
                       IODebugContext*) override {
    zkv_stat stat;
    IOStatus status = Stat(path, &stat);
    *size = status.ok() ? stat.size : 0;
    return status;
  }
  IOStatus GetFileModificationTime(const std::string& path, const IOOptions&, uint64_t* time,
                                   IODebugContext*) override {
    zkv_stat stat;
    IOStatus status = Stat(path, &stat);
    if (status.ok()) *time = stat.mtime;
    return status;
  }
  IOStatus NumFileLinks(const std::string& path, const IOOptions&, uint64_t* count,
                        IODebugContext*) override {
    zkv_stat stat;
    IOStatus status = Stat(path, &stat);
    if (status.ok()) *count = stat.links;
    return status;
  }
  IOStatus AreFilesSame(const std::string& first, const std::string& second, const IOOptions&,
                        bool* same, IODebugContext*) override {
    zkv_stat left, right;
    IOStatus status = Stat(first, &left);
    if (status.ok()) status = Stat(second, &right);
    if (status.ok()) *same = left.ino == right.ino;
    return status;
  }
  IOStatus IsDirectory(const std::string& path, const IOOptions&, bool* is,
                       IODebugContext*) override {
    zkv_stat stat;
    IOStatus status = Stat(path, &stat);
    if (status.ok() && is != nullptr) *is = stat.is_directory != 0;
    return status;
  }
  IOStatus GetFreeSpace(const std::string&, const IOOptions&, uint64_t* bytes,
                        IODebugContext*) override {
    return StatusOf(reserve_->Free(Kept::kAll, bytes));
  }

  IOStatus LockFile(const std::string& path, const IOOptions&, FileLock** lock,
                    IODebugContext*) override {
    *lock = nullptr;
    return With(path, ZKV_READ | ZKV_WRITE | ZKV_CREATE, false, [&](FileHandle opened) {
      IOStatus status = StatusOf(zkv_file_lock(opened.get()));
      if (status.ok()) *lock = new Lock(std::move(opened));
      return status;
    });
  }
  IOStatus UnlockFile(FileLock* lock, const IOOptions&, IODebugContext*) override {
    delete lock;
    return IOStatus::OK();
  }
  IOStatus NewLogger(const std::string& path, const IOOptions&, std::shared_ptr<Logger>* log,
                     IODebugContext*) override {
    return With(path, ZKV_WRITE | ZKV_CREATE | ZKV_TRUNCATE, false, [&](FileHandle opened) {
      *log = Log(std::move(opened));
      return IOStatus::OK();
    });
  }
  IOStatus GetAbsolutePath(const std::string& path, const IOOptions&, std::string* absolute,
                           IODebugContext*) override {
    *absolute = !path.empty() && path[0] == '/' ? path : "/" + path;
    return IOStatus::OK();
  }
  IOStatus GetTestDirectory(const IOOptions& options, std::string* path,
                            IODebugContext* debug) override {
    *path = "/rocksdbtest-" + std::to_string(geteuid());
    return CreateDirIfMissing(*path, options, debug);
  }

 private:
  IOStatus Stat(const std::string& path, zkv_stat* stat) const {
    return StatusOf(zkv_stat_path(store_, Text(path), stat));
  }

  template <typename Use>
  IOStatus With(const std::string& path, uint32_t flags, bool direct, Use use) {
    FileHandle file;
    IOStatus status = Open(store_, path, flags | (direct ? ZKV_DIRECT : 0), &file);
    return status.ok() ? use(std::move(file)) : status;
  }

  IOStatus OpenWritable(const std::string& path, uint32_t flags, const FileOptions& options,
                        std::unique_ptr<FSWritableFile>* file) {
    const bool direct = options.use_direct_writes;
    return With(path, flags, direct, [&](FileHandle opened) {
      uint64_t size = 0;
      const int error = zkv_file_size(opened.get(), &size);
      if (error == 0) *file = WritableFile(std::move(opened), path, direct, size, reserve_);
      return StatusOf(error);
    });
  }

  zkv_store* const store_;
  const std::string uri_;
  const std::shared_ptr<Reserve> reserve_;
};

// Opens the drive of an address; the error says why not.
std::unique_ptr<FileSystem> Create(const std::string& uri, std::string* error) {
  zkv_store* store = nullptr;
  if (zkv_open(Text(uri), &store) == 0) return std::make_unique<ZonalFileSystem>(store, uri);
  *error = zkv_last_error();
  return nullptr;
}

// Makes zonal:// known when the library is loaded, and closes what is open when the process ends.
class Registration {
 public:
  Registration() {
    const auto pattern = ObjectLibrary::PatternEntry("zonal", false).AddSeparator("://", false);
    ObjectLibrary::Default()->AddFactory<FileSystem>(
        pattern, [](const std::string& uri, std::unique_ptr<FileSystem>* guard, std::string* error) {
          *guard = Create(uri, error);
          return guard->get();
        });
  }
  ~Registration() { zkv_close_all(); }
};

const Registration registration;

// What RocksDB's C interface has behind rocksdb_env_t, in every version that has one.
struct CEnv {
  Env* rep;
  bool is_default;
};

}  // namespace
}  // namespace zonal

extern "C" void* zonal_rocksdb_make_env(const char* uri, char** error) noexcept {
  using namespace zonal;
  std::string why;
  try {
    std::shared_ptr<FileSystem> files = Create(uri, &why);
    if (files) return new CEnv{NewCompositeEnv(files).release(), false};
  } catch (const std::exception& exception) {
    why = exception.what();
  }
  *error = strdup(why.c_str());
  return nullptr;
}
