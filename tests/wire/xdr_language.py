"""Parses a document in the XDR language (RFC 4506) and encodes values with xdrlib3, independent of the codec under
test.

Supports only what `broadloom.x` uses; anything else raises `SyntaxError`. A struct is a dict, a union a pair of
discriminant and arm, an enum an int, optional data None or the value.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

from xdrlib3 import Packer, Unpacker

TOKEN = re.compile(r"[A-Za-z_]\w*|0x[0-9A-Fa-f]+|\d+|[{}()<>\[\]*;:,=]|\S")
SIMPLE = {"unsigned int": "uint", "unsigned hyper": "uhyper", "int": "int", "hyper": "hyper", "bool": "bool"}
UNLIMITED = (1 << 32) - 1


class Declaration(NamedTuple):
    """A name and its type. `shape` is "" for one value, "[" for `size`, "<" for up to `size`, "*" for optional."""

    kind: str
    name: str = ""
    shape: str = ""
    size: int = 0


class UnionType(NamedTuple):
    tag: Declaration
    arms: dict[int, Declaration]
    labels: dict[int, str]
    """The constant by which the document names each arm."""


class Document:
    """All definitions of one file, and `read` and `write` for values of its types."""

    def __init__(self, text: str) -> None:
        self.consts: dict[str, int] = {}
        self.enums: dict[str, dict[str, int]] = {}
        self.structs: dict[str, list[Declaration]] = {}
        self.unions: dict[str, UnionType] = {}
        self.typedefs: dict[str, Declaration] = {}
        self._tokens = TOKEN.findall(re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))
        self._tokens.reverse()
        while self._tokens:
            self._define()

    @classmethod
    def load(cls, path: Path) -> "Document":
        return cls(path.read_text())

    # Parsing: one method per rule of the grammar.

    def _next(self, *expected: str) -> str:
        token = self._tokens.pop() if self._tokens else "end of file"
        if expected and token not in expected:
            raise SyntaxError(f"{token!r} where {' or '.join(expected)} expected")
        return token

    def _number(self) -> int:
        token = self._next()
        return self.consts[token] if token in self.consts else int(token, 0)

    def _define(self) -> None:
        what = self._next("const", "typedef", "enum", "struct", "union")
        if what == "typedef":
            declaration = self._declaration()
            self.typedefs[declaration.name] = declaration
        else:
            name = self._next()
            getattr(self, f"_define_{what}")(name)
        self._next(";")

    def _define_const(self, name: str) -> None:
        self._next("=")
        self.consts[name] = self._number()

    def _define_enum(self, name: str) -> None:
        self.enums[name] = {}
        self._next("{")
        mark = ","
        while mark == ",":
            label = self._next()
            self._next("=")
            self.enums[name][label] = self._number()
            mark = self._next(",", "}")

    def _define_struct(self, name: str) -> None:
        self.structs[name] = fields = []
        self._next("{")
        while self._tokens[-1] != "}":
            fields.append(self._declaration())
            self._next(";")
        self._next("}")

    def _define_union(self, name: str) -> None:
        self._next("switch")
        self._next("(")
        union = self.unions[name] = UnionType(self._declaration(), {}, {})
        self._next(")")
        self._next("{")
        while self._next("case", "}") == "case":
            label = self._tokens[-1]
            number = self._number()
            self._next(":")
            if number in union.arms:
                raise SyntaxError(f"{name} has two arms for {number}")
            union.arms[number], union.labels[number] = self._declaration(), label
            self._next(";")

    def _declaration(self) -> Declaration:
        kind = self._next()
        if kind == "void":
            return Declaration(kind)
        if kind == "unsigned":
            kind += " " + self._next("int", "hyper")
        self._known(kind)
        if self._tokens[-1] == "*":
            self._next("*")
            return Declaration(kind, self._name(), "*")
        name = self._name()
        if self._tokens[-1] not in "[<":
            return Declaration(kind, name)
        shape = self._next()
        size = UNLIMITED if self._tokens[-1] == ">" else self._number()
        self._next("]" if shape == "[" else ">")
        return Declaration(kind, name, shape, size)

    def _name(self) -> str:
        # A trailing underscore only avoids a clash with a keyword of the language.
        return self._next().rstrip("_")

    def _known(self, kind: str) -> None:
        known = (SIMPLE, ("opaque", "string"), self.enums, self.structs, self.unions, self.typedefs)
        if not any(kind in each for each in known):
            raise SyntaxError(f"{kind!r} is used before it is defined")

    # Values.

    def read(self, source: Unpacker, declaration: Declaration) -> Any:
        kind, _, shape, size = declaration
        if shape == "":
            return self._read_one(source, kind)
        if shape == "*":
            return self._read_one(source, kind) if source.unpack_bool() else None
        value: Any
        if kind in ("opaque", "string"):
            value = source.unpack_fopaque(size) if shape == "[" else source.unpack_opaque()
        elif shape == "[":
            value = source.unpack_farray(size, lambda: self._read_one(source, kind))
        else:
            value = source.unpack_array(lambda: self._read_one(source, kind))
        if len(value) > size:
            raise ValueError(f"{len(value)} where the document allows {size}: {declaration}")
        return value.decode() if kind == "string" else value

    def _read_one(self, source: Unpacker, kind: str) -> Any:
        if kind == "void":
            return None
        if kind in SIMPLE:
            return getattr(source, f"unpack_{SIMPLE[kind]}")()
        if kind in self.enums:
            value = source.unpack_enum()
            if value not in self.enums[kind].values():
                raise ValueError(f"{value} is not a {kind}")
            return value
        if kind in self.structs:
            return {each.name: self.read(source, each) for each in self.structs[kind]}
        if kind in self.unions:
            number = self.read(source, self.unions[kind].tag)
            return number, self.read(source, self.unions[kind].arms[number])
        return self.read(source, self.typedefs[kind])

    def write(self, target: Packer, declaration: Declaration, value: Any) -> None:
        """Encodes values beyond the limits too, to test how decoders react."""
        kind, _, shape, size = declaration
        if kind in ("opaque", "string"):
            data = value.encode() if kind == "string" else value
            if shape == "[":
                target.pack_fopaque(size, data)
            else:
                target.pack_opaque(data)
        elif shape == "*":
            target.pack_bool(value is not None)
            if value is not None:
                self._write_one(target, kind, value)
        elif shape == "[":
            target.pack_farray(size, value, lambda each: self._write_one(target, kind, each))
        elif shape == "<":
            target.pack_array(value, lambda each: self._write_one(target, kind, each))
        else:
            self._write_one(target, kind, value)

    def _write_one(self, target: Packer, kind: str, value: Any) -> None:
        if kind in SIMPLE:
            getattr(target, f"pack_{SIMPLE[kind]}")(value)
        elif kind in self.enums:
            target.pack_enum(value)
        elif kind in self.structs:
            for each in self.structs[kind]:
                self.write(target, each, value[each.name])
        elif kind in self.unions:
            number, arm = value
            self.write(target, self.unions[kind].tag, number)
            self.write(target, self.unions[kind].arms[number], arm)
        elif kind != "void":
            self.write(target, self.typedefs[kind], value)
