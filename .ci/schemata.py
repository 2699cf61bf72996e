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

# Appended to the root of the protocol. With MUTANT_TRACE, it prints the mutants that were reached.
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

# Appended to the library's root.
SAME_SWITCH = """
#[doc(hidden)]
pub use webhook_serializer_protocol::mutant;
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
        self.lines = source.splitlines(keepends=True)
        self.root = tree_sitter.Parser(RUST).parse(source).root_node
        self.values, self.expressions, self.arms, self.fields = (defaultdict(list) for _ in range(4))
        self.alone, self.broken = [], []
        for mutant in mutants:
            try:
                self.place(mutant)
            except NotWoven:
                self.broken.append(mutant)
            except OfItsOwn:
                self.alone.append(mutant)
        self.text = self.write()
        written = self.text.encode()
        self.at = {}
        for found in re.finditer(rb"/\*<(\d+)\*/", written):
            self.at[int(found[1])] = (found.start(), written.index(b"/*%b>*/" % found[1], found.end()))

    def offset(self, at):
        """In bytes; cargo-mutants counts lines, and characters in them, from one."""
        before, line = self.lines[: at["line"] - 1], self.lines[at["line"] - 1]
        return len(b"".join(before)) + len(line.decode()[: at["column"] - 1].encode())

    def place(self, mutant):
        start, end = self.offset(mutant["span"]["start"]), self.offset(mutant["span"]["end"])
        mutant["range"] = (start, end)
        genre = mutant["genre"]
        token = self.root.descendant_for_byte_range(start, end)
        around = self.root.named_descendant_for_byte_range(start, end)
        if genre == "FnValue":
            if re.search(rb"\bconst\s+fn\b|->.*\bimpl\b", self.head(ancestor(around, "function_item")), re.S):
                raise OfItsOwn
            self.values[start].append(mutant)
            return
        self.refuse_constant(around)
        if genre == "BinaryOperator":
            whole = token.parent
            if whole.type == "let_chain":
                raise NotWoven
            # Another operator may have another precedence, so the whole chain is rewritten.
            while whole.type == "binary_expression" and whole.parent.type == "binary_expression":
                whole = whole.parent
            self.expressions[whole].append(mutant)
        elif genre == "UnaryOperator":
            self.expressions[ancestor(token, "unary_expression", "negative_literal")].append(mutant)
        elif genre in ("MatchArm", "MatchArmGuard"):
            arm = ancestor(around, "match_arm")
            others = [one.child_by_field_name("pattern").text for one in siblings(arm, "match_arm")]
            # Arms with a condition do not count towards exhaustiveness.
            if genre == "MatchArm" and not any(re.fullmatch(rb"[a-z_]\w*|\(_(, _)*\)", other) for other in others):
                raise NotWoven
            self.arms[arm].append(mutant)
        elif genre == "StructField":
            field = self.root.named_descendant_for_byte_range(start, start + 1)
            field = ancestor(field, "field_initializer", "shorthand_field_initializer")
            (base,) = siblings(field, "base_field_initializer")
            mutant["base"] = base.text.decode().removeprefix("..")
            # The base would be moved before the other fields.
            if re.fullmatch(r"[a-z_]\w*", mutant["base"]):
                raise OfItsOwn
            self.fields[field].append(mutant)
        else:
            raise ValueError(f"cargo-mutants knows a new genre: {genre}")

    def head(self, function):
        return self.source[function.start_byte : function.child_by_field_name("body").start_byte]

    def refuse_constant(self, node):
        while node is not None and node.type != "function_item":
            if node.type in ("const_item", "static_item", "array_type"):
                raise OfItsOwn
            node = node.parent
        if node and re.search(rb"\bconst\s+fn\b", self.head(node)):
            raise OfItsOwn

    def write(self):
        """The source with a text before and after each place."""
        placed = [self.around_field(node, here) for node, here in self.fields.items()]
        placed += [self.around_guard(node, here) for node, here in self.arms.items()]
        placed += [self.around_expression(node, here) for node, here in self.expressions.items()]
        # What is around another place comes first, and ends last. Fields and guards may be expressions.
        placed.sort(key=lambda place: (place[0], -place[1]))
        added = [(start, 2, number, before) for number, (start, _, before, _) in enumerate(placed)]
        added += [(end, 0, -number, after) for number, (_, end, _, after) in enumerate(placed)]
        for start, here in self.values.items():
            returns = (f"if {switch(one)} {{ return {marked(one, one['replacement'])}; }} " for one in here)
            added.append((start, 1, 0, "".join(returns)))
        text, at = "", 0
        for place, _, _, addition in sorted(added):
            text += self.source[at:place].decode() + addition
            at = place
        return text + self.source[at:].decode()

    def around_expression(self, node, mutants):
        choices = ""
        for mutant in mutants:
            start, end = mutant["range"]
            before, after = self.source[node.start_byte : start].decode(), self.source[end : node.end_byte].decode()
            changed = marked(mutant, f"{before} {mutant['replacement']} {after}")
            choices += f"if {switch(mutant)} {{ {changed} }} else "
        return node.start_byte, node.end_byte, f"({choices}{{ ", " })"

    def around_guard(self, arm, mutants):
        guard = ""
        for mutant in mutants:
            is_on = marked(mutant, switch(mutant))
            guard = f"({is_on} || {guard}" if mutant["replacement"] == "true" else f"(!{is_on} && {guard}"
        pattern = arm.child_by_field_name("pattern")
        condition = pattern.child_by_field_name("condition")
        if condition:
            return condition.start_byte, condition.end_byte, f"{guard}(", ")" * (len(mutants) + 1)
        return pattern.end_byte, pattern.end_byte, f" if {guard}true{')' * len(mutants)}", ""

    def around_field(self, field, mutants):
        name = (field.children[0] if field.children else field).text.decode()
        is_short = field.type == "shorthand_field_initializer"
        value = field if is_short else field.children[-1]
        before = f"{name}: " if is_short else ""
        for mutant in reversed(mutants):
            before += f"if {switch(mutant)} {{ {marked(mutant, '(' + mutant['base'] + ').' + name)} }} else {{ "
        return value.start_byte, value.end_byte, before, " }" * len(mutants)


def alone(text, mutant):
    """A file's text with this mutant in it, and no other."""
    lines, span = text.splitlines(keepends=True), mutant["span"]
    start, end = (sum(map(len, lines[: at["line"] - 1])) + at["column"] - 1 for at in (span["start"], span["end"]))
    return f"{text[:start]} {mutant['replacement']} {text[end:]}"


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
