"""Mutant schemata: every mutant of cargo-mutants' list is written into the sources at
once, each behind a switch, `crate::mutant(n)`, which the variable MUTANT turns on. What
took a build for each takes one for all. A mutant that does not compile is found by the
place of its error.

What a switch cannot be in (constants, and functions whose type is what they return)
is left to a build of its own.
"""

import re
from collections import defaultdict

import tree_sitter
import tree_sitter_rust

RUST = tree_sitter.Language(tree_sitter_rust.language())

# Appended to the library's root. With MUTANT_TRACE, it prints the mutants that were reached.
SWITCH = r"""
/// Whether this mutant is asked.
#[doc(hidden)]
pub fn mutant(number: usize) -> bool {
    use std::io::Write;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    static ASKED: OnceLock<(Option<usize>, Option<std::ffi::OsString>)> = OnceLock::new();
    static REACHED: [AtomicBool; 10_000] = [const { AtomicBool::new(false) }; 10_000];
    let (asked, trace) = ASKED.get_or_init(|| {
        (std::env::var("MUTANT").ok().and_then(|number| number.parse().ok()), std::env::var_os("MUTANT_TRACE"))
    });
    if let Some(trace) = trace
        && !REACHED[number].swap(true, Ordering::Relaxed)
    {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(trace).expect("a file");
        file.write_all(format!("{number}\n").as_bytes()).expect("it can be written");
    }
    *asked == Some(number)
}
"""


class NotWoven(Exception):
    """It would not compile, whatever it is."""


class OfItsOwn(Exception):
    """It takes a build of its own."""


class Woven:
    """A file with these mutants in it. `text` is what it becomes, `at` where in it each
    mutant stands, in bytes, `alone` which take a build of their own, `broken` which compile never."""

    def __init__(self, source, mutants):
        self.source = source
        lines = source.split(b"\n")
        self.lines, self.starts = lines, [0]
        for line in lines:
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.root = tree_sitter.Parser(RUST).parse(source).root_node
        self.expressions, self.arms, self.fields = defaultdict(list), defaultdict(list), defaultdict(list)
        self.values = defaultdict(list)
        self.alone, self.broken = [], []
        for mutant in mutants:
            try:
                self.place(mutant)
            except NotWoven:
                self.broken.append(mutant)
            except OfItsOwn:
                self.alone.append(mutant)
        text = self.between(0, self.root.start_byte) + self.render(self.root)
        self.text = text + source[self.root.end_byte :].decode()
        assert not self.values, f"not written: {self.values}"
        written = self.text.encode()
        self.at = {}
        for found in re.finditer(rb"/\*<(\d+)\*/", written):
            self.at[int(found[1])] = (found.start(), written.index(b"/*%b>*/" % found[1], found.end()))

    def offset(self, at):
        """In bytes; cargo-mutants counts lines, and characters in them, from one."""
        return self.starts[at["line"] - 1] + len(self.lines[at["line"] - 1].decode()[: at["column"] - 1].encode())

    def place(self, mutant):
        start, end = self.offset(mutant["span"]["start"]), self.offset(mutant["span"]["end"])
        mutant["range"] = (start, end)
        genre = mutant["genre"]
        token = self.root.descendant_for_byte_range(start, end)
        around = self.root.named_descendant_for_byte_range(start, end)
        if genre == "FnValue":
            function = ancestor(around, "function_item")
            head = self.source[function.start_byte : function.child_by_field_name("body").start_byte]
            if re.search(rb"\bconst\s+fn\b|->.*\bimpl\b", head, re.S):
                raise OfItsOwn
            self.values[start].append(mutant)
            return
        self.constant(around)
        if genre == "BinaryOperator":
            whole = token.parent
            if whole.type == "let_chain":
                raise NotWoven
            # Another operator may have another precedence, so the whole chain is rewritten.
            while whole.type == "binary_expression" and whole.parent.type == "binary_expression":
                whole = whole.parent
            self.expressions[whole.id].append(mutant)
        elif genre == "UnaryOperator":
            self.expressions[ancestor(token, "unary_expression", "negative_literal").id].append(mutant)
        elif genre in ("MatchArm", "MatchArmGuard"):
            arm = ancestor(around, "match_arm")
            others = [one.child_by_field_name("pattern").text for one in siblings(arm, "match_arm")]
            # Arms with a condition do not count towards exhaustiveness.
            if genre == "MatchArm" and not any(re.fullmatch(rb"[a-z_]\w*|\(_(, _)*\)", other) for other in others):
                raise NotWoven
            self.arms[arm.id].append(mutant)
        elif genre == "StructField":
            field = self.root.named_descendant_for_byte_range(start, start + 1)
            field = ancestor(field, "field_initializer", "shorthand_field_initializer")
            (base,) = siblings(field, "base_field_initializer")
            mutant["base"] = base.text.decode().removeprefix("..")
            # The base would be moved before the other fields.
            if re.fullmatch(r"[a-z_]\w*", mutant["base"]):
                raise OfItsOwn
            self.fields[field.id].append(mutant)
        else:
            raise ValueError(f"cargo-mutants knows a new genre: {genre}")

    def constant(self, node):
        while node is not None and node.type != "function_item":
            if node.type in ("const_item", "static_item", "array_type"):
                raise OfItsOwn
            node = node.parent
        if node and re.search(rb"\bconst\s+fn\b", self.source[node.start_byte : node.child_by_field_name("body").start_byte]):
            raise OfItsOwn

    def changed(self, node, mutant):
        """The text of a node with this mutant in it."""
        start, end = mutant["range"]
        before, after = self.source[node.start_byte : start], self.source[end : node.end_byte]
        return marked(mutant, f"{before.decode()} {mutant['replacement']} {after.decode()}")

    def between(self, start, end):
        """What is written from here to there, functions' values at their places."""
        text, at = "", start
        for point in sorted(point for point in self.values if start <= point < end):
            text += self.source[at:point].decode()
            for mutant in self.values.pop(point):
                text += f"if {switch(mutant)} {{ return {marked(mutant, mutant['replacement'])}; }} "
            at = point
        return text + self.source[at:end].decode()

    def pieces(self, node, start):
        """What a node consists of, from `start` on."""
        text, at = "", start
        for child in node.children:
            if child.start_byte >= start:
                text += self.between(at, child.start_byte) + self.render(child)
                at = child.end_byte
        return text + self.between(at, node.end_byte)

    def render(self, node):
        # A function's first statement begins at the place of its value.
        before = self.between(node.start_byte, node.start_byte + 1)[:-1] if node.start_byte in self.values else ""
        if node.id in self.expressions:
            choices = "".join(f"if {switch(one)} {{ {self.changed(node, one)} }} else " for one in self.expressions[node.id])
            return f"{before}({choices}{{ {self.pieces(node, node.start_byte)} }})"
        if node.id in self.arms:
            return before + self.arm(node)
        if node.id in self.fields:
            return before + self.field(node)
        if not node.children:
            return before + self.source[node.start_byte : node.end_byte].decode()
        return before + self.pieces(node, node.start_byte)

    def arm(self, node):
        pattern = node.child_by_field_name("pattern")
        condition = pattern.child_by_field_name("condition")
        guard = f"({self.render(condition)})" if condition else "true"
        end = condition.start_byte if condition else pattern.end_byte
        text = re.sub(r"\bif\s*$", "", self.source[node.start_byte : end].decode())
        for mutant in self.arms[node.id]:
            if mutant["replacement"] == "true":
                guard = f"({marked(mutant, switch(mutant))} || {guard})"
            else:
                guard = f"(!{marked(mutant, switch(mutant))} && {guard})"
        return f"{text} if {guard}{self.pieces(node, pattern.end_byte)}"

    def field(self, node):
        name = node.children[0].text.decode() if node.children else node.text.decode()
        value = self.render(node.children[-1]) if node.type == "field_initializer" else name
        for mutant in self.fields[node.id]:
            value = f"if {switch(mutant)} {{ {marked(mutant, '(' + mutant['base'] + ').' + name)} }} else {{ {value} }}"
        return f"{name}: {value}"


def alone(text, mutant):
    """A file's text with this mutant in it, and no other."""
    lines = text.splitlines(keepends=True)
    (first, last) = mutant["span"]["start"], mutant["span"]["end"]
    before = "".join(lines[: first["line"] - 1]) + lines[first["line"] - 1][: first["column"] - 1]
    after = lines[last["line"] - 1][last["column"] - 1 :] + "".join(lines[last["line"] :])
    return f"{before} {mutant['replacement']} {after}"


def switch(mutant):
    return f"crate::mutant({mutant['number']})"


def marked(mutant, text):
    return f"/*<{mutant['number']}*/{text}/*{mutant['number']}>*/"


def ancestor(node, *kinds):
    while node.type not in kinds:
        node = node.parent
    return node


def siblings(node, kind):
    return [one for one in node.parent.named_children if one.type == kind and one.id != node.id]


def compiled_never(mutants_at, message):
    """The mutant at which the compiler has an error; `None` if it is at none.
    `mutants_at` is each file's `at`."""
    for span in spans(message):
        here = mutants_at.get(span["file_name"], {})
        around = [(end - start, number) for number, (start, end) in here.items()
                  if start <= span["byte_start"] and span["byte_end"] <= end]
        if around:
            return min(around)[1]
    return None


def spans(message):
    yield from sorted(message["spans"], key=lambda span: not span["is_primary"])
    for child in message["children"]:
        yield from spans(child)
