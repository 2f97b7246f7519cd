"""What a wheel unpacks to: every file is recorded, and it can be imported."""

import base64
import csv
import hashlib
import pathlib
import unittest

import zonal

SITE = pathlib.Path(zonal.__file__).parent.parent


class Wheel(unittest.TestCase):
    def test_every_file_is_in_the_record_with_its_sum(self):
        (record,) = SITE.glob("zonal-*.dist-info/RECORD")
        rows = list(csv.reader(record.read_text().splitlines()))
        found = {str(path.relative_to(SITE)) for path in SITE.rglob("*") if path.is_file()}
        self.assertEqual(found, {name for name, *_ in rows})
        for name, sum, size in rows:
            if name.endswith("RECORD"):
                continue
            data = (SITE / name).read_bytes()
            self.assertEqual(int(size), len(data))
            expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
            self.assertEqual(sum, "sha256=" + expected.decode())

    def test_it_has_the_library_the_types_and_the_licence(self):
        names = {path.name for path in SITE.rglob("*")}
        for name in ("_zonal.abi3.so", "_zonal.pyi", "py.typed", "METADATA", "LICENSE-MIT"):
            self.assertIn(name, names)

    def test_its_version_is_that_of_the_module(self):
        (info,) = SITE.glob("zonal-*.dist-info")
        self.assertEqual(info.name, f"zonal-{zonal.__version__}.dist-info")
        self.assertIn(f"\nVersion: {zonal.__version__}\n", (info / "METADATA").read_text())


if __name__ == "__main__":
    unittest.main()
