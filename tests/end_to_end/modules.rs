//! The library's modules depend on each other in no circle: siblings at any
//! level, from the rooms at the root on. What a file re-exports of its children
//! is its children's; tests are not counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// A module's path from the library's root.
type Module = Vec<String>;

/// A path in the source, and the name that it is used under, where it has one.
struct Used {
    path: Vec<String>,
    name: Option<String>,
}

/// The source without comments, literals and what is for tests only.
fn code(text: &str) -> String {
    without_tests(&without_literals(text))
}

fn without_literals(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let raw = rest.trim_start_matches('b').strip_prefix('r').map(|rest| rest.trim_start_matches('#'));
        let is_word = code.ends_with(|last: char| last.is_alphanumeric() || last == '_');
        let end = if rest.starts_with("//") {
            rest.find('\n')
        } else if rest.starts_with("/*") {
            rest.find("*/").map(|end| end + 2)
        } else if let Some(inside) = raw.filter(|inside| !is_word && inside.starts_with('"')) {
            let hashes = rest[..rest.len() - inside.len()].matches('#').count();
            let close = format!("\"{}", "#".repeat(hashes));
            inside[1..].find(&close).map(|end| rest.len() - inside.len() + 1 + end + close.len())
        } else if first == '"' {
            let mut escaped = false;
            let ends = |(_, c): &(usize, char)| {
                let is_end = *c == '"' && !escaped;
                escaped = *c == '\\' && !escaped;
                is_end
            };
            rest.char_indices().skip(1).find(ends).map(|(end, _)| end + 1)
        } else if first == '\'' && (rest.starts_with("'\\") || rest.chars().nth(2) == Some('\'')) {
            // Not a lifetime.
            rest.char_indices()
                .skip(if rest.starts_with("'\\") { 3 } else { 2 })
                .find(|(_, c)| *c == '\'')
                .map(|(end, _)| end + 1)
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        code.push(' ');
        rest = &rest[end.unwrap_or(rest.len())..];
    }
    code
}

fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        let (mut depth, mut end) = (0, rest.len());
        for (at, c) in rest.char_indices() {
            depth += i32::from(c == '{') - i32::from(c == '}');
            if depth == 0 && (c == '}' || c == ';') {
                end = at + 1;
                break;
            }
        }
        rest = &rest[end..];
    }
    kept + rest
}

fn words(code: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut in_word = false;
    for c in code.chars() {
        let is_word = c.is_alphanumeric() || c == '_';
        match words.last_mut() {
            Some(last) if is_word && in_word => last.push(c),
            Some(last) if c == ':' && last == ":" => last.push(c),
            _ if c.is_whitespace() => {}
            _ => words.push(c.to_string()),
        }
        in_word = is_word;
    }
    words
}

/// The paths of a `use` tree that begins at `at`; where it ends.
fn tree(words: &[String], mut at: usize, prefix: &[String], used: &mut Vec<Used>) -> usize {
    let mut path = prefix.to_vec();
    loop {
        match words[at].as_str() {
            "::" => at += 1,
            "{" => {
                at += 1;
                while words[at] != "}" {
                    at = tree(words, at, &path, used);
                    at += usize::from(words[at] == ",");
                }
                return at + 1;
            }
            "," | "}" | ";" => {
                let name = path.last().cloned();
                used.push(Used { path, name });
                return at;
            }
            "as" => {
                let name = Some(words[at + 1].clone());
                used.push(Used { path, name });
                return at + 2;
            }
            word => {
                path.push(word.to_owned());
                at += 1;
            }
        }
    }
}

/// Every path of a file: what it uses, and what it names in full.
fn paths(code: &str) -> Vec<Used> {
    let words = words(code);
    let mut used = Vec::new();
    let mut at = 0;
    while at < words.len() {
        // Not what an `impl Trait` captures.
        if words[at] == "use" && words[at + 1] != "<" {
            at = tree(&words, at + 1, &[], &mut used);
        } else if matches!(words[at].as_str(), "crate" | "super" | "self")
            && words.get(at + 1).is_some_and(|w| w == "::")
        {
            let mut path = vec![words[at].clone()];
            while words.get(at + 1).is_some_and(|word| word == "::") {
                path.extend(words.get(at + 2).cloned());
                at += 2;
            }
            used.push(Used { path, name: None });
            at += 1;
        } else {
            at += 1;
        }
    }
    used
}

struct Library {
    modules: BTreeSet<Module>,
    used: BTreeMap<Module, Vec<Used>>,
}

impl Library {
    /// Of files, by their paths from `src`.
    fn of(files: &[(String, String)]) -> Self {
        let mut used = BTreeMap::new();
        for (path, text) in files {
            let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
            let module: Module = path.split('/').filter(|part| *part != "lib").map(str::to_owned).collect();
            if !module.iter().any(|part| part == "tests") {
                used.insert(module, paths(&code(text)));
            }
        }
        Self { modules: used.keys().cloned().collect(), used }
    }

    /// The module in which that stands which `path`, written in `module`, names.
    fn find(&self, module: &Module, path: &[String], seen: &mut BTreeSet<(Module, String)>) -> Option<Module> {
        let (mut found, mut rest) = match path.split_first()? {
            (first, rest) if first == "crate" => (Module::new(), rest),
            (first, _) if first == "self" || first == "super" => (module.clone(), path),
            (first, _) if self.modules.contains(&[module.as_slice(), std::slice::from_ref(first)].concat()) => {
                (module.clone(), path)
            }
            _ => return None,
        };
        while let Some((next, behind)) = rest.split_first() {
            let child = [found.as_slice(), std::slice::from_ref(next)].concat();
            match next.as_str() {
                "self" => {}
                "super" => _ = found.pop(),
                _ if self.modules.contains(&child) => found = child,
                _ => break,
            }
            rest = behind;
        }
        // What it has from elsewhere is of there.
        if let Some(name) = rest.first()
            && seen.insert((found.clone(), name.clone()))
            && let Some(used) = self.used.get(&found)
            && let Some(import) = used.iter().find(|used| used.name.as_ref() == Some(name) && used.path.len() > 1)
            && let Some(elsewhere) = self.find(&found, &import.path, seen)
        {
            return Some(elsewhere);
        }
        Some(found)
    }

    /// Which sibling depends on which, and an example of who does.
    fn edges(&self) -> BTreeMap<Module, BTreeMap<Module, Module>> {
        let mut edges: BTreeMap<Module, BTreeMap<Module, Module>> = BTreeMap::new();
        for (module, used) in &self.used {
            for used in used {
                let Some(target) = self.find(module, &used.path, &mut BTreeSet::new()) else { continue };
                let common = module.iter().zip(&target).take_while(|(one, other)| one == other).count();
                if common < module.len() && common < target.len() {
                    let (from, to) = (module[..=common].to_vec(), target[..=common].to_vec());
                    edges.entry(from).or_default().entry(to).or_insert_with(|| module.clone());
                }
            }
        }
        edges
    }

    /// The circles, the shortest through each module that is in one.
    fn circles(&self) -> BTreeSet<String> {
        let edges = self.edges();
        let mut circles = BTreeSet::new();
        for start in edges.keys() {
            let mut ways = vec![vec![start.clone()]];
            let mut reached = BTreeSet::new();
            'found: while !ways.is_empty() {
                for way in std::mem::take(&mut ways) {
                    for next in edges.get(way.last().expect("it has a start")).into_iter().flat_map(BTreeMap::keys) {
                        if next == start {
                            circles.insert(told(&way, &edges));
                            break 'found;
                        }
                        if reached.insert(next.clone()) {
                            ways.push([way.as_slice(), std::slice::from_ref(next)].concat());
                        }
                    }
                }
            }
        }
        circles
    }
}

/// A circle, from the module that comes first in the alphabet.
fn told(way: &[Module], edges: &BTreeMap<Module, BTreeMap<Module, Module>>) -> String {
    let first = way.iter().enumerate().min_by_key(|(_, module)| *module).map_or(0, |(at, _)| at);
    let way: Vec<&Module> = (0..=way.len()).map(|step| &way[(first + step) % way.len()]).collect();
    let step = |pair: &[&Module]| {
        format!("{} -> {} ({})", pair[0].join("::"), pair[1].join("::"), edges[pair[0]][pair[1]].join("/"))
    };
    way.windows(2).map(step).collect::<Vec<_>>().join(", ")
}

fn files(folder: &Path, root: &Path, files_of: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, root, files_of);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).expect("below it").to_str().expect("a text").to_owned();
            files_of.push((name, fs::read_to_string(&path).expect("a text")));
        }
    }
}

fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").join("shared/src");
    let mut found = Vec::new();
    files(&root, &root, &mut found);
    found
}

#[test]
fn library_has_no_module_cycle() {
    let library = Library::of(&sources());
    let circles: Vec<String> = library.circles().into_iter().collect();
    assert!(circles.is_empty(), "{}", circles.join("\n"));
    // It is not that it sees nothing.
    let rooms = |from: &str| library.edges().remove(&vec![from.to_owned()]).unwrap_or_default().into_keys();
    assert_eq!(rooms("telemetry").collect::<Vec<_>>(), [["protocol"], ["time"]]);
    assert_eq!(rooms("protocol").collect::<Vec<_>>(), [["time"]]);
    assert!(rooms("engine").any(|room| room == ["sources"]));
}

fn planted(files: &[(&str, &str)]) -> Vec<String> {
    let files: Vec<_> = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    Library::of(&files).circles().into_iter().collect()
}

#[test]
fn module_cycle_is_found_in_every_notation() {
    let one = "a -> b (a), b -> a (b)";
    for (a, b) in [
        ("use crate::b::B;", "use crate::{c::C, a::{A, Other as O}};"),
        ("fn f() -> crate::b::B { '\"'; }", "use super::a::A;"),
        ("use super::b;", "const QUOTED: &str = r#\"use\"#; fn f<'a>(a: &'a super::a::A) -> impl I + use<'a> { ; }"),
        // What the root re-exports of them is theirs.
        ("use crate::B;", "use crate::A;"),
    ] {
        let lib = "pub mod a; pub mod b; pub use a::A; pub use self::b::B;";
        assert_eq!(planted(&[("lib.rs", lib), ("a.rs", a), ("b.rs", b), ("c.rs", "")]), [one], "{a} {b}");
    }
    let inside = [("lib.rs", ""), ("room.rs", "mod x; mod y; pub use x::X; pub use y::Y;")];
    let inside = [&inside[..], &[("room/x.rs", "use super::Y;"), ("room/y/mod.rs", "use crate::room::X;")]].concat();
    assert_eq!(planted(&inside), ["room::x -> room::y (room/x), room::y -> room::x (room/y)"]);
    let deep = [("lib.rs", ""), ("a/inner.rs", "use crate::b::B;"), ("b.rs", "use crate::c::C;")];
    let deep = [&deep[..], &[("a.rs", "mod inner;"), ("c.rs", "use crate::a::A;")]].concat();
    assert_eq!(planted(&deep), ["a -> b (a/inner), b -> c (b), c -> a (c)"]);
}

#[test]
fn comments_tests_and_reexports_are_no_cycle() {
    let a = "// use crate::b::B;\n/// [`crate::b::B`]\nconst B: &str = \"use crate::b::B;\";";
    let b = "use crate::a::A; #[cfg(test)] mod tests { use crate::c::C; }";
    let c = "mod inner; pub use inner::I; use crate::b::B;";
    let inner = "use super::C; use crate::a::A;";
    let files = [("lib.rs", "pub use a::A;"), ("a.rs", a), ("b.rs", b), ("c.rs", c), ("c/inner.rs", inner)];
    assert_eq!(planted(&files), [""; 0]);
    assert_eq!(planted(&[("a.rs", ""), ("a/tests.rs", "use crate::b::B;"), ("b.rs", "use crate::a::A;")]), [""; 0]);
}

#[test]
fn key_prefixes_are_spelled_in_one_file() {
    let spelled = |text: &str| ["\"d#", "\"p#", "\"r#", "\"b#"].iter().any(|prefix| text.contains(prefix));
    let files: Vec<String> = sources().into_iter().filter(|(_, text)| spelled(text)).map(|(path, _)| path).collect();
    assert_eq!(files, ["protocol/keys.rs"]);
}
