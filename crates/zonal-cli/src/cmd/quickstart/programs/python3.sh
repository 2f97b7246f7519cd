python3 -B - <<'END'
import hashlib, mmap, os
names = {}
for number in range(1000):
    data = hashlib.sha256(str(number).encode()).digest() * (number % 50 + 1)
    with open("part", "wb") as file:
        file.write(data)
        if number % 50 == 0:
            os.fsync(file.fileno())
    os.rename("part", f"{number:04}")
    names[f"{number:04}"] = data
for name in sorted(names)[::3]:
    os.remove(name)
    del names[name]
with open("mapped", "w+b") as file:
    file.truncate(4 << 20)
    with mmap.mmap(file.fileno(), 0) as view:
        for page in range(0, len(view), 4096):
            view[page:page + 8] = page.to_bytes(8, "little")
        view.flush()
with open("mapped", "rb") as file:
    for page in range(0, 4 << 20, 4096):
        file.seek(page)
        assert file.read(8) == page.to_bytes(8, "little"), page
for name, data in names.items():
    with open(name, "rb") as file:
        assert file.read() == data, name
assert sorted(os.listdir()) == sorted([*names, "mapped"])
END
echo "1,000 files written, renamed, read back; mmap"
