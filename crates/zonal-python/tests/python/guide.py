"""Runs the examples of a page of the guide and prints how many lines of Python they were.

The page is one session: `>>>` and what is printed, in blocks that are fenced.
"""

import doctest
import os
import sys
import tempfile


def main() -> None:
    page = sys.argv[1]
    with open(page, encoding="utf-8") as file:
        # The end of a block is the end of what is printed.
        lines = ["" if line.startswith("```") else line for line in file.read().splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        test = doctest.DocTestParser().get_doctest("\n".join(lines), {}, page, page, 0)
        results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
        # What is still open lies in the folder.
        test.globs.clear()
        os.chdir("/")
    if results.failed:
        raise SystemExit(f"{results.failed} of {results.attempted} examples failed")
    print(results.attempted)


if __name__ == "__main__":
    main()
