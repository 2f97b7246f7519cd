// The library from C++: a volume in memory, bytes of any type, a batch. For the test `c`.
#include <zonal.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Closer {
	void operator()(zonal_device *device) const { zonal_close(device); }
	void operator()(zonal_volume *volume) const { zonal_volume_close(volume); }
	void operator()(zonal_file *file) const { zonal_file_close(file); }
};

template <typename T> using Handle = std::unique_ptr<T, Closer>;

std::int64_t check(std::int64_t result)
{
	if (result < 0)
		throw std::runtime_error(zonal_last_error());
	return result;
}

extern "C" int collect(void *context, const struct zonal_entry *entry)
{
	static_cast<std::vector<std::string> *>(context)->emplace_back(entry->name);
	return 0;
}

void use_files(const zonal_device *device)
{
	check(zonal_mkfs(device, nullptr));
	zonal_volume *opened = nullptr;
	check(zonal_volume_open_on(device, O_RDWR, nullptr, &opened));
	const Handle<zonal_volume> volume(opened);
	zonal_file *created = nullptr;
	check(zonal_file_open(volume.get(), "numbers", O_RDWR | O_CREAT, 0644, &created));
	const Handle<zonal_file> file(created);
	const std::vector<double> numbers{0.5, 1.5, 2.5};
	const auto bytes = numbers.size() * sizeof(double);
	check(zonal_file_write(file.get(), numbers.data(), bytes, 0));
	std::vector<double> found(numbers.size());
	if (check(zonal_file_read(file.get(), found.data(), bytes, 0)) != std::int64_t(bytes) || found != numbers)
		throw std::runtime_error("the file has other numbers");
	std::vector<std::string> names;
	check(zonal_list(volume.get(), "/", collect, &names));
	if (names != std::vector<std::string>{"numbers"})
		throw std::runtime_error("the directory has other names");
	if (zonal_mkdir(volume.get(), "numbers", 0755) != -EEXIST)
		throw std::runtime_error("a directory over a file");
}

void use_zones(const zonal_device *device)
{
	const std::array<char, 4096> data{'z'};
	zonal_io io{};
	io.op = ZONAL_IO_APPEND;
	io.data = data.data();
	io.count = data.size();
	if (check(zonal_submit(device, &io, 1)) != 1 || io.result != 0)
		throw std::runtime_error("the append went elsewhere");
}

} // namespace

int main()
try {
	for (const auto use : {use_files, use_zones}) {
		zonal_device *opened = nullptr;
		check(zonal_open("mem:zone=3M,zones=64", O_RDWR, nullptr, &opened));
		const Handle<zonal_device> device(opened);
		use(device.get());
	}
	std::cout << "files and zones from C++\n";
	return 0;
} catch (const std::exception &error) {
	std::cerr << error.what() << '\n';
	return 1;
}
