//! The environment variables that replace options.

use std::ffi::OsString;

use clap::{
    Arg, Command, Error,
    builder::Resettable,
    error::{ContextKind, ContextValue, ErrorKind},
};

fn value(option: &Arg) -> Option<OsString> {
    option.get_env().and_then(std::env::var_os)
}

/// Makes variables that are set but empty count as unset.
pub fn without_empty(command: Command) -> Command {
    let is_empty = |option: &Arg| value(option).is_some_and(|value| value.is_empty());
    command
        .mut_args(|option| if is_empty(&option) { option.env(Resettable::Reset) } else { option })
        .mut_subcommands(without_empty)
}

/// Names the variable in the error about a wrong value, if the value is the variable's. `typed` are the command line's
/// arguments, whose options replace variables.
pub fn named_in(mut error: Error, command: &mut Command, typed: &[OsString]) -> Error {
    if error.kind() == ErrorKind::InvalidUtf8 {
        // An argument that is not UTF-8 has the same error.
        let is_text = typed.iter().all(|argument| argument.to_str().is_some());
        let variable = variable_of(command, typed, |_, value| is_text && value.to_str().is_none());
        let advice = |name| format!("the value of the variable {name} is not UTF-8: set it again, or unset it");
        return variable.map_or(error, |name| command.error(ErrorKind::InvalidUtf8, advice(name)));
    }
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let found = text(ContextKind::InvalidArg).zip(text(ContextKind::InvalidValue)).and_then(|(option, given)| {
        let name = option.split(' ').next()?.strip_prefix("--")?;
        variable_of(command, typed, |option, value| option == name && value == given)
    });
    if let Some(variable) = found {
        error.insert(ContextKind::InvalidArg, ContextValue::String(variable));
    }
    error
}

/// Returns the first variable in place of an option that `is_it` accepts, by the option's name and the value.
fn variable_of(command: &Command, typed: &[OsString], is_it: impl Fn(&str, &OsString) -> bool) -> Option<String> {
    let chosen = typed.iter().fold(command, |command, word| command.find_subcommand(word).unwrap_or(command));
    let is_typed = |name: &str| {
        let names = |word: &OsString| {
            let rest = word.to_str().and_then(|word| word.strip_prefix("--")?.strip_prefix(name));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        };
        typed.iter().take_while(|word| *word != "--").any(names)
    };
    let variable = chosen.get_arguments().find(|option| {
        let name = option.get_long().unwrap_or_default();
        value(option).is_some_and(|value| is_it(name, &value)) && !is_typed(name)
    });
    Some(variable?.get_env()?.to_string_lossy().into_owned())
}
