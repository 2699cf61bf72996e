//! Makes the list of verbs in `docs/operating.md` from their command-line definitions.

use std::fmt::Write;

use crate::verbs::{Act, VERBS};

/// Returns a line for each verb: what to type, and the first line of its help as a comment.
pub fn verbs() -> String {
    let mut lines = String::new();
    for (verb, command) in VERBS.iter().filter_map(|verb| Some((verb, verb.command()?))) {
        let mut typed = format!("serializer {}", command.get_name());
        let options = command.get_opts().filter(|option| option.is_required_set());
        let arguments = command.get_positionals().chain(options);
        for (argument, value) in arguments.filter_map(|one| Some((one, one.get_value_names()?.first()?))) {
            typed += &match argument.get_long() {
                Some(option) => format!(" --{option} {value}"),
                // Without an order, options choose many.
                None if value == "ORDER" || matches!(verb.act, Act::Delivery(_)) => format!(" {value}"),
                None => format!(" [{value}]"),
            };
        }
        let about = command.get_about().expect("each verb has a help text").to_string();
        let (first, rest) = about.split_at(1);
        let _ = writeln!(lines, "{typed:46} # {}{rest}", first.to_lowercase());
    }
    lines
}
