//! The environment variables that replace options.

use clap::{
    Arg, Command, Error,
    builder::Resettable,
    error::{ContextKind, ContextValue},
};

fn value(option: &Arg) -> Option<std::ffi::OsString> {
    option.get_env().and_then(std::env::var_os)
}

/// Makes variables that are set but empty count as unset.
pub fn without_empty(command: Command) -> Command {
    let is_empty = |option: &Arg| value(option).is_some_and(|value| value.is_empty());
    command
        .mut_args(|option| if is_empty(&option) { option.env(Resettable::Reset) } else { option })
        .mut_subcommands(without_empty)
}

/// Names the variable in the error about a wrong value, in place of the option, if the value is the variable's.
pub fn named_in(mut error: Error, command: &Command) -> Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let found = text(ContextKind::InvalidArg)
        .zip(text(ContextKind::InvalidValue))
        .and_then(|(option, value)| variable_of(command, option, value));
    if let Some(variable) = found {
        error.insert(ContextKind::InvalidArg, ContextValue::String(variable));
    }
    error
}

fn variable_of(command: &Command, option: &str, given: &str) -> Option<String> {
    let name = option.split(' ').next()?.strip_prefix("--")?;
    let is_given = |known: &&Arg| known.get_long() == Some(name) && value(known).is_some_and(|value| value == given);
    let variable = || Some(command.get_arguments().find(is_given)?.get_env()?.to_string_lossy().into_owned());
    variable().or_else(|| command.get_subcommands().find_map(|inner| variable_of(inner, option, given)))
}
