"""Misuse: everything is refused with an error, and the interpreter lives."""

import errno
import gc
import io
import threading
import unittest

import zonal
from zonal import _zonal


def volume():
    device = zonal.open("mem:zone=4M,zones=64")
    zonal.mkfs(device)
    return zonal.Volume(device)


class Closed(unittest.TestCase):
    def check_closed(self, action):
        with self.assertRaises((zonal.Error, ValueError)) as caught:
            action()
        if isinstance(caught.exception, zonal.Error):
            self.assertEqual(caught.exception.errno, errno.EBADF)

    def test_a_closed_device_answers_ebadf(self):
        device = zonal.open("mem:zone=4M,zones=8")
        device.close()
        device.close()
        self.assertTrue(device.closed)
        self.assertIn("closed", repr(device))
        self.assertEqual(device.zones, 8)
        for action in (
            lambda: device.read(0, 4096),
            lambda: device.readinto(0, bytearray(4096)),
            lambda: device.write(0, bytes(4096)),
            lambda: device.append(0, bytes(4096)),
            lambda: device.report(),
            lambda: device.zone(0),
            lambda: device.flush(),
            lambda: device.reset_zone(0),
            lambda: device.submit([]),
            lambda: device.holds(),
            lambda: device.identity(),
            lambda: device.simulated_ns,
            lambda: zonal.mkfs(device),
            lambda: zonal.Volume(device),
        ):
            self.check_closed(action)

    def test_a_closed_volume_answers_ebadf(self):
        closed = volume()
        raw = _zonal.RawFile(closed, "raw", 0o102)
        file = closed.open("f", "w+b", buffering=0)
        closed.close()
        closed.close()
        self.assertTrue(closed.closed and file.closed)
        self.assertIn("closed", repr(closed))
        self.check_closed(lambda: raw.pread(1, 0))
        self.check_closed(lambda: raw.append(b"x"))
        for action in (
            lambda: closed.listdir(),
            lambda: closed.stat("f"),
            lambda: closed.open("f"),
            lambda: closed.sync(),
            lambda: closed.statvfs(),
            lambda: closed.mkdir("d"),
            lambda: file.read(1),
            lambda: file.seek(0),
            lambda: file.stat(),
        ):
            self.check_closed(action)

    def test_closing_a_volume_writes_what_its_files_have_buffered(self):
        device = zonal.open("mem:zone=4M,zones=64")
        zonal.mkfs(device)
        one = zonal.Volume(device)
        file = one.open("f", "w")
        file.write("buffered")
        one.close()
        self.assertTrue(file.closed)
        with zonal.Volume(device) as other:
            self.assertEqual(other.read_text("f"), "buffered")

    def test_a_file_keeps_its_volume(self):
        file = volume().open("f", "w+b", buffering=0)
        gc.collect()
        file.write(b"still there")
        self.assertEqual(file.pread(100, 0), b"still there")
        file.close()
        file.close()

    def test_a_device_that_is_closed_below_a_volume_stays_for_it(self):
        device = zonal.open("mem:zone=4M,zones=64")
        zonal.mkfs(device)
        with zonal.Volume(device) as mounted:
            device.close()
            mounted.write_text("f", "x")
            self.assertEqual(mounted.read_text("f"), "x")


class Arguments(unittest.TestCase):
    def test_types_are_checked(self):
        device = zonal.open("mem:zone=4M,zones=8")
        for action in (
            lambda: device.write(0, "text"),
            lambda: device.write("0", b""),
            lambda: device.append(None, b""),
            lambda: device.submit([1]),
            lambda: device.submit(None),
            lambda: device.readinto(0, 5),
            lambda: zonal.open(5),
            lambda: zonal.Volume(5),
            lambda: zonal.mkfs(None),
            lambda: zonal.Io(),
        ):
            self.assertRaises(TypeError, action)
        for action in (
            lambda: device.read(-1, 4096),
            lambda: device.read(0, -1),
            lambda: device.append(1 << 32, b""),
        ):
            self.assertRaises(OverflowError, action)

    def test_places_that_are_not_on_the_device_are_refused(self):
        device = zonal.open("mem:zone=4M,zones=8")
        for action in (
            lambda: device.read(0, 1 << 60),
            lambda: device.read((1 << 64) - 4096, 1 << 62),
            lambda: device.read(device.capacity_bytes, 4096),
            lambda: device.read(1, 4096),
            lambda: device.read(0, 100),
            lambda: device.write(device.capacity_bytes, bytes(4096)),
            lambda: device.write((1 << 64) - 4096, bytes(4096)),
            lambda: device.write(0, b"short"),
            lambda: device.append(8, bytes(4096)),
            lambda: device.append((1 << 32) - 1, bytes(4096)),
            lambda: device.append(0, bytes(4097)),
            lambda: device.reset_zone(8),
            lambda: device.zone(8),
            lambda: device.deallocate(1 << 62, 1 << 62),
        ):
            self.assertRaises(zonal.Error, action)
        for request in (
            zonal.Io.read(0, 1 << 60),
            zonal.Io.read((1 << 64) - 4096, 1 << 62),
            zonal.Io.append((1 << 32) - 1, b""),
            zonal.Io.write((1 << 64) - 4096, bytes(4096)),
        ):
            self.assertIsInstance(device.submit([request])[0], zonal.Error)

    def test_buffers_that_cannot_be_filled_are_refused(self):
        device = zonal.open("mem:zone=4M,zones=8")
        released = memoryview(bytearray(4096))
        released.release()
        for buffer in (bytes(4096), memoryview(bytes(4096)), released):
            with self.assertRaises(ValueError):
                device.readinto(0, buffer)
        with self.assertRaises(TypeError):
            device.readinto(0, memoryview(bytearray(8192))[::2])
        with self.assertRaises(ValueError):
            device.write(0, released)
        self.assertEqual(device.readinto(0, bytearray()), 0)

    def test_a_buffer_with_gaps_is_written_as_its_bytes(self):
        device = zonal.open("mem:zone=4M,zones=8")
        device.write(0, memoryview(b"ab" * 4096)[::2])
        self.assertEqual(device.read(0, 4096), b"a" * 4096)

    def test_a_buffer_may_change_while_it_is_written(self):
        device = zonal.open("mem:zone=4M,zones=8")
        buffer = bytearray(1 << 20)
        thread = threading.Thread(target=lambda: device.append(0, buffer))
        thread.start()
        for at in range(1000):
            buffer[at] = 1
        thread.join()
        buffer.extend(b"it can be resized again")
        self.assertEqual(device.zone(0).written_bytes, 1 << 20)

    def test_names_and_offsets_of_files_are_checked(self):
        with volume() as mounted:
            for action in (
                lambda: mounted.mkdir("a\0b"),
                lambda: mounted.mkdir("x" * 256),
                lambda: mounted.mkdir(""),
                lambda: mounted.write_bytes("", b""),
                lambda: mounted.rmdir("/"),
                lambda: mounted.rename("/", "x"),
                lambda: mounted.setxattr("/", "", b""),
                lambda: mounted.setxattr("/", "x" * 300, b""),
            ):
                self.assertRaises((zonal.Error, ValueError), action)
            with mounted.open("f", "w+b", buffering=0) as file:
                self.assertRaises(zonal.Error, file.pwrite, b"x", (1 << 64) - 1)
                self.assertRaises(zonal.Error, file.truncate, (1 << 64) - 1)
                self.assertRaises(OverflowError, file.pwrite, b"x", -1)
                self.assertRaises(OverflowError, file.pread, 1, 1 << 64)
                self.assertRaises(ValueError, file.seek, -1)
                self.assertRaises(ValueError, file.seek, 0, 99)
                self.assertEqual(file.pread(1 << 62, 0), b"")
                self.assertEqual(file.pread(10, 1 << 63), b"")
                self.assertRaises(io.UnsupportedOperation, file.fileno)
                self.assertEqual(file.size(), 0)

    def test_an_object_that_was_not_made_is_refused(self):
        self.assertRaises(TypeError, _zonal.RawFile.__new__, _zonal.RawFile)
        with self.assertRaises((zonal.Error, FileNotFoundError)):
            zonal.Volume("/nowhere/drive.zns")
        with volume() as mounted:
            file = zonal.File.__new__(zonal.File)
            self.assertRaises((ValueError, AttributeError), file.read, 1)
            self.assertRaises(TypeError, mounted.open)


class Threads(unittest.TestCase):
    def test_closing_while_others_read_and_write(self):
        for _ in range(10):
            mounted = volume()
            file = mounted.open("f", "w+b", buffering=0)
            begun = threading.Barrier(4)
            strange = []

            def work():
                begun.wait()
                try:
                    for at in range(10_000):
                        file.pwrite(b"x" * 4096, at * 4096 % (1 << 20))
                        mounted.stat("f")
                except (zonal.Error, ValueError) as error:
                    if isinstance(error, zonal.Error) and error.errno != errno.EBADF:
                        strange.append(error)

            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            begun.wait()
            mounted.close()
            for thread in threads:
                thread.join()
            self.assertEqual(strange, [])

    def test_an_object_ends_in_another_thread(self):
        held = [volume()]
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        gc.collect()


if __name__ == "__main__":
    unittest.main()
