"""Volumes: files as Python has them, and everything that has a path."""

import errno
import io
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import threading
import unittest

import zonal


class Volumes(unittest.TestCase):
    def setUp(self):
        self.device = zonal.open("mem:zone=4M,zones=64")
        zonal.mkfs(self.device)
        self.volume = zonal.Volume(self.device)
        self.addCleanup(self.volume.close)


class Making(unittest.TestCase):
    def test_a_device_that_holds_something_is_refused(self):
        device = zonal.open("mem:zone=4M,zones=64")
        with self.assertRaises(zonal.Error):
            zonal.Volume(device)
        zonal.mkfs(device, label="first")
        self.assertEqual(device.holds(), "furrow")
        with zonal.Volume(device) as volume:
            volume.write_text("kept", "yes")
        with self.assertRaisesRegex(zonal.Error, "[Ff]urrow"):
            zonal.mkfs(device)
        with zonal.Volume(device) as volume:
            self.assertEqual(volume.read_text("kept"), "yes")
        zonal.mkfs(device, overwrite=True)
        with zonal.Volume(device) as volume:
            self.assertEqual(volume.listdir(), [])

    def test_zonefs_has_a_file_for_each_zone(self):
        device = zonal.open("mem:zone=4M,zones=8")
        zonal.mkfs(device, "zonefs")
        self.assertEqual(device.holds(), "zonefs")
        with zonal.Volume(device) as volume:
            self.assertEqual(sorted(volume.listdir("seq"), key=int)[:2], ["0", "1"])
            with volume.open("seq/0", "r+b", buffering=0) as file:
                self.assertEqual(file.append(b"z" * 4096), 0)
                self.assertEqual(file.append(b"y" * 4096), 4096)
                self.assertEqual(file.size(), 8192)
                self.assertEqual(file.pread(1, 4096), b"y")
            with self.assertRaises(PermissionError):
                volume.unlink("seq/0")

    def test_a_volume_lives_on_a_drive_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "drive.zns"
            zonal.create(path, "zone=3M,zones=64")
            zonal.mkfs(path)
            with zonal.Volume(path) as volume:
                volume.makedirs("a/b")
                volume.write_bytes("a/b/c", b"content")
                with self.assertRaises(zonal.Error) as caught:
                    zonal.Volume(path)
                self.assertEqual(caught.exception.errno, errno.EBUSY)
            with zonal.Volume(path, read_only=True, memory_bytes=64 << 20) as volume:
                self.assertTrue(volume.read_only)
                self.assertEqual(volume.read_bytes("a/b/c"), b"content")
                with self.assertRaises(zonal.Error) as caught:
                    volume.write_bytes("new", b"")
                self.assertEqual(caught.exception.errno, errno.EROFS)

    def test_a_device_that_only_looks_on_makes_a_volume_that_keeps_writers_out(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "drive.zns")
            zonal.create(path, "zone=3M,zones=64")
            zonal.mkfs(path)
            with zonal.open(path, read_only=True) as device:
                with zonal.Volume(device) as volume:
                    self.assertTrue(volume.read_only)
                    self.assertEqual(volume.listdir(), [])
                    with self.assertRaises(zonal.Error) as caught:
                        zonal.Volume(path)
                    self.assertEqual(caught.exception.errno, errno.EBUSY)
                with zonal.Volume(path) as writer:
                    with self.assertRaises(zonal.Error) as caught:
                        zonal.Volume(device)
                    self.assertEqual(caught.exception.errno, errno.EBUSY)
                    writer.write_text("f", "x")

    def test_a_device_is_the_volumes_until_that_is_closed(self):
        device = zonal.open("mem:zone=4M,zones=64")
        zonal.mkfs(device)
        volume = zonal.Volume(device)
        for action in (
            lambda: device.append(9, bytes(4096)),
            lambda: device.reset_all_zones(),
            lambda: device.submit([zonal.Io.append(9, bytes(4096))]),
            lambda: zonal.mkfs(device, overwrite=True),
            lambda: zonal.Volume(device),
        ):
            with self.assertRaises(zonal.Error) as caught:
                action()
            self.assertEqual(caught.exception.errno, errno.EBUSY)
        self.assertEqual(len(device.report()), 64)
        volume.close()
        device.reset_all_zones()
        self.assertIsNone(device.holds())

    def test_what_was_written_is_kept_when_a_program_ends_without_closing(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "drive.zns")
            zonal.create(path, "zone=3M,zones=64")
            zonal.mkfs(path)
            # The frame of a daemon thread is never freed.
            program = (
                "import sys, threading, zonal\n"
                "def hold(volume, file):\n"
                "    file.write('open')\n"
                "    is_written.set()\n"
                "    threading.Event().wait()\n"
                "is_written = threading.Event()\n"
                "volume = zonal.Volume(sys.argv[1])\n"
                "held = (volume, volume.open('left', 'w'))\n"
                "threading.Thread(target=hold, args=held, daemon=True).start()\n"
                "is_written.wait()\n"
            )
            subprocess.run([sys.executable, "-c", program, path], check=True)
            with zonal.Volume(path) as volume:
                self.assertEqual(volume.read_text("left"), "open")


class Opening(Volumes):
    def test_modes_are_those_of_open(self):
        volume = self.volume
        self.assertIsInstance(volume.open("a", "w"), io.TextIOWrapper)
        self.assertIsInstance(volume.open("a", "wb"), io.BufferedWriter)
        self.assertIsInstance(volume.open("a", "rb"), io.BufferedReader)
        self.assertIsInstance(volume.open("a", "r+b"), io.BufferedRandom)
        raw = volume.open("a", "rb", buffering=0)
        self.assertIsInstance(raw, zonal.File)
        self.assertIsInstance(raw, io.RawIOBase)
        self.assertEqual((raw.mode, raw.name), ("rb", "a"))
        with self.assertRaises(FileExistsError):
            volume.open("a", "x")
        with self.assertRaises(FileNotFoundError):
            volume.open("b")
        with self.assertRaises(IsADirectoryError):
            volume.open("/", "w")
        for mode in ("", "rw", "q", "rr", "rbt", "b", "+"):
            with self.assertRaises(ValueError, msg=mode):
                volume.open("a", mode)
        with self.assertRaises(ValueError):
            volume.open("a", "r", buffering=0)
        with self.assertRaises(ValueError):
            volume.open("a", "rb", encoding="utf-8")

    def test_text_is_written_and_read_line_by_line(self):
        with self.volume.open("text", "w", encoding="utf-8") as file:
            print("grüße", "welt", file=file)
            file.write("zwei\n")
        with self.volume.open("text", encoding="utf-8") as file:
            self.assertEqual(list(file), ["grüße welt\n", "zwei\n"])

    def test_a_raw_file_has_a_position(self):
        with self.volume.open("raw", "w+b", buffering=0) as file:
            self.assertEqual(file.write(b"0123456789"), 10)
            self.assertEqual(file.tell(), 10)
            self.assertEqual(file.seek(-3, os.SEEK_END), 7)
            self.assertEqual(file.read(2), b"78")
            self.assertEqual(file.seek(1, os.SEEK_CUR), 10)
            self.assertEqual(file.read(2), b"")
            file.seek(2)
            buffer = bytearray(4)
            self.assertEqual(file.readinto(buffer), 4)
            self.assertEqual(buffer, b"2345")
            self.assertEqual(file.readall(), b"6789")
            self.assertEqual(file.truncate(3), 3)
            self.assertEqual(file.size(), 3)
            file.seek(0)
            self.assertEqual(file.read(), b"012")
            self.assertEqual((file.readable(), file.writable(), file.seekable()), (True,) * 3)

    def test_what_is_not_open_for_it_is_refused(self):
        self.volume.write_bytes("a", b"x")
        with self.volume.open("a", "rb", buffering=0) as file:
            self.assertFalse(file.writable())
            with self.assertRaises(OSError) as caught:
                file.write(b"y")
            self.assertEqual(caught.exception.errno, errno.EBADF)
        with self.volume.open("a", "ab", buffering=0) as file:
            self.assertEqual(file.tell(), 1)
            with self.assertRaises(OSError):
                file.read(1)

    def test_appending_goes_to_the_end(self):
        with self.volume.open("log", "a") as one, self.volume.open("log", "ab", 0) as other:
            one.write("one\n")
            one.flush()
            other.write(b"two\n")
            self.assertEqual(other.tell(), 8)
            self.assertEqual(other.append(b"three\n"), 8)
        self.assertEqual(self.volume.read_text("log"), "one\ntwo\nthree\n")

    def test_a_large_file_is_read_back(self):
        data = os.urandom(5 << 20)
        with self.volume.open("large", "wb") as file:
            for at in range(0, len(data), 70_001):
                file.write(memoryview(data)[at : at + 70_001])
        with self.volume.open("large", "rb") as file:
            self.assertEqual(file.read(), data)
            file.seek(4_321_000)
            self.assertEqual(file.read(1000), data[4_321_000:4_322_000])

    def test_a_random_file_is_read_and_written(self):
        with self.volume.open("f", "w+b") as file:
            file.write(b"a" * 100_000)
            file.seek(50_000)
            file.write(b"b")
            file.seek(49_999)
            self.assertEqual(file.read(3), b"aba")

    def test_offsets_of_threads_do_not_disturb_each_other(self):
        with self.volume.open("shared", "w+b", buffering=0) as file:
            wrong = []

            def work(number):
                mine = bytes([number]) * 4096
                for at in range(20):
                    offset = (at * 4 + number) * 4096
                    file.pwrite(mine, offset)
                    if file.pread(4096, offset) != mine:
                        wrong.append(offset)

            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])
            self.assertEqual(file.size(), 80 * 4096)

    def test_an_open_file_stays_when_its_name_goes(self):
        with self.volume.open("gone", "w+b", buffering=0) as file:
            file.write(b"here")
            self.volume.unlink("gone")
            self.assertFalse(self.volume.exists("gone"))
            self.assertEqual(file.pread(4, 0), b"here")

    def test_holes_are_found(self):
        with self.volume.open("sparse", "w+b", buffering=0) as file:
            file.pwrite(b"x" * 4096, 1 << 20)
            self.assertEqual(file.seek(0, os.SEEK_DATA), 1 << 20)
            self.assertEqual(file.seek(0, os.SEEK_HOLE), 0)
            self.assertEqual(file.seek(1 << 20, os.SEEK_HOLE), (1 << 20) + 4096)

    def test_a_range_is_copied_inside_the_volume(self):
        data = os.urandom(100_000)
        self.volume.write_bytes("source", data)
        with self.volume.open("source", "rb", 0) as source:
            with self.volume.open("target", "w+b", 0) as target:
                self.assertEqual(source.copy_range(target, 1 << 30), 100_000)
                self.assertEqual(target.readall(), data)

    def test_a_lock_keeps_other_files_out(self):
        with self.volume.open("LOCK", "wb", 0) as one, self.volume.open("LOCK", "wb", 0) as other:
            one.lock()
            with self.assertRaises(BlockingIOError):
                other.lock()
            one.unlock()
            other.lock()

    def test_syncs_return(self):
        with self.volume.open("f", "wb", 0) as file:
            file.write(b"x")
            file.datasync()
            file.sync()
        self.volume.sync()


class Paths(Volumes):
    def test_directories_are_made_listed_and_removed(self):
        volume = self.volume
        volume.mkdir("a", 0o700)
        self.assertEqual(stat.S_IMODE(volume.stat("a").st_mode), 0o700)
        volume.makedirs(pathlib.PurePosixPath("a/b/c"))
        volume.makedirs("a/b/c")
        volume.write_text("a/file", "x")
        self.assertEqual(sorted(volume.listdir("a")), ["b", "file"])
        self.assertEqual(sorted(volume.listdir(b"a")), [b"b", b"file"])
        self.assertEqual(
            list(volume.walk("a")), [("a", ["b"], ["file"]), ("a/b", ["c"], []), ("a/b/c", [], [])]
        )
        with self.assertRaises(OSError) as caught:
            volume.rmdir("a")
        self.assertEqual(caught.exception.errno, errno.ENOTEMPTY)
        with self.assertRaises(NotADirectoryError):
            volume.listdir("a/file")
        volume.unlink("a/file")
        volume.rmdir("a/b/c")
        self.assertTrue(volume.isdir("a/b") and not volume.isfile("a/b"))
        self.assertFalse(volume.exists("a/file/below"))

    def test_names_are_bytes(self):
        name = b"not \xff UTF-8"
        self.volume.write_bytes(name, b"x")
        self.assertEqual(self.volume.listdir(b"/"), [name])
        self.assertEqual(self.volume.listdir(), [os.fsdecode(name)])
        self.assertEqual(self.volume.read_bytes(os.fsdecode(name)), b"x")

    def test_links_and_renames(self):
        volume = self.volume
        volume.write_text("one", "content")
        volume.link("one", "two")
        self.assertEqual(volume.stat("two").st_nlink, 2)
        self.assertEqual(volume.stat("two").st_ino, volume.stat("one").st_ino)
        volume.symlink("two", "soft")
        self.assertEqual(volume.readlink("soft"), "two")
        self.assertEqual(volume.readlink(b"soft"), b"two")
        self.assertTrue(stat.S_ISLNK(volume.lstat("soft").st_mode))
        self.assertTrue(stat.S_ISREG(volume.stat("soft").st_mode))
        volume.rename("one", "three")
        volume.rename("three", "two")
        self.assertEqual(volume.read_text("soft"), "content")
        self.assertFalse(volume.exists("one"))

    def test_attributes_are_changed(self):
        volume = self.volume
        volume.write_text("f", "1234")
        volume.chmod("f", 0o600)
        volume.chown("f", 12, 34)
        volume.chown("f", -1, 35)
        volume.utime("f", ns=(1_000_000_007, -5))
        found = volume.stat("f")
        self.assertEqual(stat.S_IMODE(found.st_mode), 0o600)
        self.assertEqual((found.st_uid, found.st_gid, found.st_size), (12, 35, 4))
        self.assertEqual((found.st_atime_ns, found.st_mtime_ns), (1_000_000_007, -5))
        self.assertEqual(found.st_atime, 1.000000007)
        volume.utime("f")
        self.assertGreater(volume.stat("f").st_mtime, 1_600_000_000)
        volume.truncate("f", 2)
        self.assertEqual(volume.read_text("f"), "12")
        with self.assertRaises(ValueError):
            volume.chown("f", -2, 0)

    def test_extended_attributes(self):
        volume = self.volume
        volume.write_text("f", "")
        volume.setxattr("f", "user.colour", b"blue")
        self.assertEqual(volume.getxattr("f", "user.colour"), b"blue")
        self.assertEqual(volume.listxattr("f"), ["user.colour"])
        volume.removexattr("f", b"user.colour")
        with self.assertRaises(zonal.Error) as caught:
            volume.getxattr("f", "user.colour")
        self.assertEqual(caught.exception.errno, errno.ENODATA)

    def test_lifetimes_are_handed_down(self):
        volume = self.volume
        volume.mkdir("logs")
        volume.set_lifetime("logs", "short")
        with volume.open("logs/today", "wb", 0) as file:
            self.assertEqual(file.lifetime, "short")
            file.lifetime = "long"
        self.assertEqual(volume.get_lifetime("logs/today"), "long")
        self.assertEqual(volume.get_lifetime("/"), "none")
        with self.assertRaisesRegex(ValueError, "is no lifetime: none, short"):
            volume.set_lifetime("logs", "soon")

    def test_space_is_told(self):
        before = self.volume.statvfs()
        self.volume.write_bytes("f", bytes(1 << 20))
        self.volume.sync()
        after = self.volume.statvfs()
        used = (before.f_bfree - after.f_bfree) * after.f_frsize
        self.assertGreaterEqual(used, 1 << 20)
        self.assertEqual(after.f_namemax, 255)


if __name__ == "__main__":
    unittest.main()
