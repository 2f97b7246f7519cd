"""The stubs of the native module, and documentation: compared with what is there."""

import ast
import inspect
import pathlib
import sys
import unittest

import zonal
from zonal import _files, _zonal

PACKAGE = pathlib.Path(zonal.__file__).parent


def parameters(function: ast.FunctionDef):
    """Names of parameters, with a mark for those that are keywords only, and their defaults."""
    arguments = function.args
    plain = arguments.posonlyargs + arguments.args
    pairs = [(argument.arg, None) for argument in plain]
    for at, default in enumerate(reversed(arguments.defaults), 1):
        pairs[-at] = (pairs[-at][0], ast.literal_eval(default))
    if arguments.vararg:
        pairs.append(("*" + arguments.vararg.arg, None))
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults):
        pairs.append(("keyword " + argument.arg, ast.literal_eval(default)))
    return [pair for pair in pairs if pair[0] not in ("self", "cls")]


def signature(function):
    """The same of what is there."""
    pairs = []
    for name, parameter in inspect.signature(function).parameters.items():
        default = None if parameter.default is parameter.empty else parameter.default
        if parameter.kind is parameter.VAR_POSITIONAL:
            name = "*" + name
        elif parameter.kind is parameter.KEYWORD_ONLY:
            name = "keyword " + name
        pairs.append((name, default))
    return [pair for pair in pairs if pair[0] not in ("self", "cls")]


def is_public(name: str) -> bool:
    return not name.startswith("_")


class Stubs(unittest.TestCase):
    def setUp(self):
        self.tree = ast.parse((PACKAGE / "_zonal.pyi").read_text())

    def compare(self, name, declared, found):
        if isinstance(found, (property, type(_zonal.Device.zones))) or not callable(found):
            self.assertTrue(declared.decorator_list, name)
            return
        self.assertEqual(parameters(declared), signature(found), name)

    def test_every_function_and_class_is_declared_as_it_is(self):
        def of(kind):
            return {node.name: node for node in self.tree.body if isinstance(node, kind)}

        functions, classes = of(ast.FunctionDef), of(ast.ClassDef)
        there = {name for name in vars(_zonal) if is_public(name)}
        self.assertEqual(set(functions) | set(classes), there)
        for name, declared in functions.items():
            self.compare(name, declared, getattr(_zonal, name))
        for name, declared in classes.items():
            methods = {}
            for node in declared.body:
                if isinstance(node, ast.FunctionDef):
                    # Of overloads the last one has every default.
                    methods[node.name] = node
            kind = getattr(_zonal, name)
            there = {member for member in vars(kind) if is_public(member)}
            self.assertEqual({member for member in methods if is_public(member)}, there, name)
            for member, node in methods.items():
                if member == "__new__":
                    # Python 3.9 does not find the signature of a constructor.
                    if sys.version_info >= (3, 10):
                        self.assertEqual(parameters(node), signature(kind), name)
                elif is_public(member):
                    self.compare(f"{name}.{member}", node, getattr(kind, member))

    def test_the_package_says_that_it_has_types(self):
        self.assertTrue((PACKAGE / "py.typed").is_file())


class Documentation(unittest.TestCase):
    def test_everything_public_is_explained(self):
        kinds = [zonal.Device, zonal.Volume, zonal.File, zonal.Io, _zonal.RawFile, _zonal.Volume]
        inherited = ("readable", "writable", "seekable", "tell")
        for kind in kinds:
            self.assertTrue(kind.__doc__, kind)
            for name, member in vars(kind).items():
                if is_public(name) and name not in inherited and name != "mode":
                    self.assertTrue(member.__doc__, f"{kind.__name__}.{name}")
        for name in zonal.__all__:
            self.assertTrue(getattr(zonal, name).__doc__, name)
        for name in ("config", "configs", "experiment", "experiments", "run"):
            self.assertTrue(getattr(zonal.sim, name).__doc__, name)

    @unittest.skipIf(sys.version_info < (3, 10), "Python 3.9 does not find the signature")
    def test_a_volume_takes_what_its_native_half_takes(self):
        self.assertEqual(signature(_files.Volume.__init__), signature(_zonal.Volume))


if __name__ == "__main__":
    unittest.main()
