"""Devices: their shape, their zones, reading and writing."""

import errno
import os
import pickle
import tempfile
import threading
import unittest

import zonal

BLOCK = 4096


def small():
    return zonal.open("mem:zone=3M,zones=10")


class Shape(unittest.TestCase):
    def test_geometry_is_in_bytes(self):
        with small() as device:
            self.assertEqual(device.zones, 10)
            self.assertEqual(device.zone_size_bytes, 3 << 20)
            self.assertEqual(device.capacity_bytes, 30 << 20)
            self.assertIn(device.block_size, (512, BLOCK))
            self.assertLessEqual(device.zone_capacity_bytes, device.zone_size_bytes)
            self.assertEqual(device.conventional_zones, 0)
            self.assertGreater(device.max_append_bytes, 0)
            self.assertFalse(device.read_only)
            self.assertIsNone(device.simulated_ns)
            self.assertIsNone(device.holds())
            self.assertIn("10 zones of 3145728 bytes", repr(device))
            self.assertEqual(device.spec, "mem:zone=3M,zones=10")
            self.assertEqual(len(device.identity()), 3)

    def test_layers_stack(self):
        with zonal.open("po2:mem:zone=3M,zones=10") as device:
            self.assertEqual(device.zone_size_bytes, 4 << 20)
            self.assertEqual(device.zone_capacity_bytes, 3 << 20)

    def test_a_report_is_a_table(self):
        with small() as device:
            device.append(2, bytes(BLOCK))
            rows = device.report()
            self.assertEqual(len(rows), 10)
            self.assertEqual(rows[2], device.zone(2))
            zone = rows[2]
            self.assertEqual((zone.zone, zone.kind), (2, "sequential"))
            self.assertEqual(zone.condition, "implicit-open")
            self.assertEqual(zone.start_bytes, 6 << 20)
            self.assertEqual(zone.write_pointer_bytes, (6 << 20) + BLOCK)
            self.assertEqual(zone.written_bytes, BLOCK)
            self.assertEqual([row.zone for row in device.report(7, 2)], [7, 8])
            self.assertEqual(device.report(10), [])
            self.assertEqual(len(device.report(8, 100)), 2)


class Zones(unittest.TestCase):
    def test_zones_are_written_appended_read_and_reset(self):
        with small() as device:
            start = device.zone_size_bytes
            data = os.urandom(BLOCK)
            self.assertEqual(device.write(start, data), BLOCK)
            self.assertEqual(device.append(1, memoryview(data)), start + BLOCK)
            self.assertEqual(device.append(1, bytearray(data)), start + 2 * BLOCK)
            self.assertEqual(device.read(start, 3 * BLOCK), 3 * data)
            device.flush()
            with self.assertRaises(zonal.Error) as caught:
                device.write(start, data)
            self.assertEqual(caught.exception.errno, errno.EIO)
            self.assertIn("has its write pointer at", caught.exception.strerror)
            device.reset_zone(1)
            self.assertEqual(device.zone(1).condition, "empty")
            self.assertEqual(device.read(start, BLOCK), bytes(BLOCK))

    def test_zones_change_their_condition(self):
        with small() as device:
            device.open_zone(3)
            self.assertEqual(device.zone(3).condition, "explicit-open")
            device.append(3, bytes(BLOCK))
            device.close_zone(3)
            self.assertEqual(device.zone(3).condition, "closed")
            device.finish_zone(3)
            self.assertEqual(device.zone(3).condition, "full")
            with self.assertRaisesRegex(zonal.Error, "zone 3 is full"):
                device.append(3, bytes(BLOCK))
            device.reset_all_zones()
            self.assertEqual({zone.condition for zone in device.report()}, {"empty"})

    def test_a_buffer_is_filled_in_place(self):
        with small() as device:
            data = os.urandom(2 * BLOCK)
            device.write(0, data)
            buffer = bytearray(3 * BLOCK)
            self.assertEqual(device.readinto(0, memoryview(buffer)[BLOCK:]), 2 * BLOCK)
            self.assertEqual(buffer, bytes(BLOCK) + data)

    def test_conventional_zones_are_written_anywhere(self):
        with zonal.open("mem:zone=3M,zones=10,conventional=2") as device:
            self.assertEqual(device.zone(0).kind, "conventional")
            self.assertIsNone(device.zone(0).write_pointer_bytes)
            device.write(5 * BLOCK, b"x" * BLOCK)
            device.deallocate(5 * BLOCK, BLOCK)
            with self.assertRaisesRegex(zonal.Error, "has a write pointer"):
                device.deallocate(2 * device.zone_size_bytes, BLOCK)


class Batches(unittest.TestCase):
    def test_each_request_has_its_result(self):
        with small() as device:
            data = os.urandom(BLOCK)
            start = 4 * device.zone_size_bytes
            results = device.submit(
                [
                    zonal.Io.append(4, data),
                    zonal.Io.flush(),
                    zonal.Io.read(start, BLOCK),
                    zonal.Io.write(start + BLOCK, data),
                    zonal.Io.write(start, data),
                    zonal.Io.read(1, BLOCK),
                    zonal.Io.append(99, data),
                ]
            )
            self.assertEqual(results[:4], [start, None, data, start + BLOCK])
            for result, number in zip(results[4:], (errno.EIO, errno.EINVAL, errno.EINVAL)):
                self.assertIsInstance(result, zonal.Error)
                self.assertEqual(result.errno, number)
            self.assertEqual(device.submit([]), [])

    def test_a_request_can_be_submitted_again(self):
        with small() as device:
            io = zonal.Io.append(0, b"x" * BLOCK)
            self.assertEqual(device.submit([io, io]), [0, BLOCK])
            self.assertEqual(repr(io), "Io.append(0, <4096 bytes>)")


class Files(unittest.TestCase):
    def test_a_drive_file_is_made_kept_and_locked(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "drive.zns")
            zonal.create(path, "zone=3M,zones=10")
            with self.assertRaises(FileExistsError):
                zonal.create(path)
            with zonal.open(path) as device:
                device.append(1, b"x" * BLOCK)
                with self.assertRaises(zonal.Error) as caught:
                    zonal.open(path)
                self.assertEqual(caught.exception.errno, errno.EBUSY)
            with zonal.open(path, read_only=True) as device:
                self.assertTrue(device.read_only)
                self.assertEqual(device.zone(1).written_bytes, BLOCK)
                with self.assertRaises(zonal.Error) as caught:
                    device.reset_zone(1)
                self.assertEqual(caught.exception.errno, errno.EROFS)
            zonal.create(path, "zone=3M,zones=20", overwrite=True)
            self.assertEqual(zonal.open(path).zones, 20)

    def test_threads_append_side_by_side(self):
        with zonal.open("mem:zone=3M,zones=4") as device:
            places = []

            def work():
                for _ in range(50):
                    places.append(device.append(2, b"x" * BLOCK))

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            first = 2 * device.zone_size_bytes
            self.assertEqual(sorted(places), [first + BLOCK * at for at in range(200)])


class Simulated(unittest.TestCase):
    def test_a_simulated_drive_has_a_time_of_its_own(self):
        with zonal.open("sim:") as device:
            before = device.simulated_ns
            device.append(0, bytes(16 * BLOCK))
            self.assertGreater(device.simulated_ns, before + 1000)


class Errors(unittest.TestCase):
    def test_an_error_is_of_the_class_that_python_has(self):
        with self.assertRaises(FileNotFoundError) as caught:
            zonal.open("/nowhere/drive.zns")
        error = caught.exception
        self.assertIsInstance(error, zonal.Error)
        self.assertEqual(error.errno, errno.ENOENT)
        self.assertIn("/nowhere/drive.zns", error.strerror)
        with self.assertRaises(ValueError) as caught:
            zonal.open("p02:mem:")
        self.assertIsInstance(caught.exception, zonal.Error)

    def test_an_error_goes_to_another_process(self):
        with self.assertRaises(zonal.Error) as caught:
            zonal.open("mem:zones=none")
        copy = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual(type(copy), type(caught.exception))
        self.assertEqual(copy.args, caught.exception.args)

    def test_faults_of_a_layer_are_errors(self):
        with zonal.open("fault(read,medium):mem:zone=3M,zones=10") as device:
            device.append(0, bytes(BLOCK))
            with self.assertRaises(zonal.Error) as caught:
                for _ in range(10):
                    device.read(0, BLOCK)
            self.assertEqual(caught.exception.errno, errno.EIO)


if __name__ == "__main__":
    unittest.main()
