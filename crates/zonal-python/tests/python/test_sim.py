"""Simulations: configs, results, progress, interrupts."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import zonal

SMALL = {
    "flash": {
        "channels": 2,
        "dies_per_channel": 1,
        "programs_per_block": 2,
        "superblocks": 256,
    },
    "drive": {"op": 0.28},
    "run": {"drive_writes": 4.0, "warm_up": 2.0, "sample": 0.5},
}


class Configs(unittest.TestCase):
    def test_configs_have_names_and_every_default(self):
        self.assertIn("zns", zonal.sim.configs())
        self.assertIn("amplification", zonal.sim.experiments())
        config = zonal.sim.config("zns", seed=7)
        self.assertEqual((config["name"], config["seed"]), ("zns", 7))
        self.assertEqual(config["drive"]["kind"], "zns")
        changed = zonal.sim.config(SMALL, settings={"drive.op": 0.07, "gc.victim": "fifo"})
        self.assertEqual((changed["drive"]["op"], changed["gc"]["victim"]), (0.07, "fifo"))
        self.assertEqual(zonal.sim.config(changed), changed)

    def test_a_file_is_a_config(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "drive.toml"
            path.write_text("name = 'mine'\n[drive]\nop = 0.5\n")
            self.assertEqual(zonal.sim.config(path)["drive"]["op"], 0.5)
            self.assertEqual(zonal.sim.config(str(path))["name"], "mine")

    def test_what_is_impossible_is_refused_by_its_field(self):
        for config, field in (
            ({"drive": {"op": -1}}, "drive.op"),
            ({"drive": {"no_such": 1}}, "no_such"),
            ({"drive": {"unit": "many"}}, "many"),
        ):
            with self.assertRaisesRegex(ValueError, field):
                zonal.sim.config(config)
        with self.assertRaisesRegex(ValueError, "drive.op"):
            zonal.sim.run(SMALL, settings={"drive.op": 1000})
        with self.assertRaises(FileNotFoundError):
            zonal.sim.run("no such config")
        with self.assertRaises(TypeError):
            zonal.sim.run(5)


class Runs(unittest.TestCase):
    def test_counting_gives_amplification_and_samples(self):
        seen = []
        result = zonal.sim.run(SMALL, progress=lambda done, total: seen.append((done, total)))
        self.assertGreater(result["wa"], 1.5)
        self.assertEqual(len(result["samples"]), 8)
        columns = ["drive_writes", "host_bytes", "wa", "wa_total"]
        self.assertEqual(list(result["samples"][0]), columns)
        self.assertEqual(result["config"]["drive"]["op"], 0.28)
        self.assertEqual(len({total for _, total in seen}), 1)
        self.assertEqual(seen[-1][0], seen[-1][1])
        self.assertEqual(result, zonal.sim.run(SMALL))
        self.assertNotEqual(result["wa"], zonal.sim.run(SMALL, seed=5)["wa"])

    def test_timed_gives_rates_and_latencies(self):
        settings = {"run.drive_writes": 2.2, "run.warm_up": 2, "run.sample": 0.05}
        result = zonal.sim.run(SMALL, settings={"run.mode": "timed", **settings})
        self.assertGreater(result["write_mb_per_s"], 0)
        self.assertGreater(result["writes"]["p99_us"], 0)
        self.assertIn("mb_s", result["samples"][0])

    def test_an_experiment_gives_tables(self):
        seen = []
        result = zonal.sim.experiment(
            "cost", quick=True, threads=2, progress=lambda *at: seen.append(at)
        )
        self.assertEqual(result["experiment"], "cost")
        rows = next(iter(result["tables"].values()))
        self.assertIsInstance(rows[0], dict)
        self.assertTrue(result["charts"])
        json.dumps(result)
        with self.assertRaisesRegex(ValueError, "throughput, amplification"):
            zonal.sim.experiment("no such")


class Ended(unittest.TestCase):
    def test_an_exception_of_progress_ends_the_simulation(self):
        class Enough(Exception):
            pass

        def progress(done, total):
            raise Enough

        with self.assertRaises(Enough):
            zonal.sim.run(SMALL, settings={"run.drive_writes": 100_000}, progress=progress)

    def test_an_interrupt_ends_the_simulation(self):
        program = (
            "import sys, zonal\n"
            "def progress(done, total):\n"
            "    print('going', flush=True)\n"
            "settings = {'run.drive_writes': 100_000, 'run.sample': 1}\n"
            "try:\n"
            "    zonal.sim.run('small', settings=settings, progress=progress)\n"
            "except KeyboardInterrupt:\n"
            "    print('interrupted')\n"
        )
        child = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with child:
            self.assertEqual(child.stdout.readline(), "going\n")
            os.kill(child.pid, signal.SIGINT)
            out, err = child.communicate()
        self.assertEqual((out.splitlines()[-1], err, child.returncode), ("interrupted", "", 0))


if __name__ == "__main__":
    unittest.main()
